//! Field orders of known vLLM versions, as read from their sources: 0.8.5, 0.9.2, 0.10.2, 0.11.2, 0.12.0, 0.13.0,
//! 0.14.1, 0.16.0, 0.18.1, 0.20.2, 0.22.1, 0.25.1, 0.28.0, 0.30.0, 0.32.0 and 0.33.0.

/// A minor version of major 0, and the fields from it on until the next row, in order.
pub(super) type Row = (u32, &'static str);

/// `EngineCoreRequest`.
pub(super) const REQUEST: &[Row] = &[
    (
        8,
        "request_id prompt_token_ids mm_inputs mm_hashes mm_placeholders sampling_params \
         eos_token_id arrival_time lora_request current_wave",
    ),
    (
        9,
        "request_id prompt_token_ids mm_inputs mm_hashes mm_placeholders sampling_params \
         pooling_params eos_token_id arrival_time lora_request cache_salt data_parallel_rank \
         client_index current_wave priority",
    ),
    (
        10,
        "request_id prompt_token_ids mm_features sampling_params pooling_params eos_token_id \
         arrival_time lora_request cache_salt data_parallel_rank client_index current_wave \
         priority trace_headers",
    ),
    (
        11,
        "request_id prompt_token_ids mm_features sampling_params pooling_params eos_token_id \
         arrival_time lora_request cache_salt data_parallel_rank prompt_embeds client_index \
         current_wave priority trace_headers",
    ),
    (
        14,
        "request_id prompt_token_ids mm_features sampling_params pooling_params eos_token_id \
         arrival_time lora_request cache_salt data_parallel_rank prompt_embeds client_index \
         current_wave priority trace_headers external_req_id",
    ),
    (
        16,
        "request_id prompt_token_ids mm_features sampling_params pooling_params eos_token_id \
         arrival_time lora_request cache_salt data_parallel_rank prompt_embeds client_index \
         current_wave priority trace_headers resumable external_req_id reasoning_ended",
    ),
    (
        18,
        "request_id prompt_token_ids mm_features sampling_params pooling_params arrival_time \
         lora_request cache_salt data_parallel_rank prompt_embeds client_index current_wave \
         priority trace_headers resumable external_req_id reasoning_ended",
    ),
    (
        20,
        "request_id prompt_token_ids mm_features sampling_params pooling_params arrival_time \
         lora_request cache_salt data_parallel_rank prompt_embeds client_index current_wave \
         priority trace_headers resumable external_req_id reasoning_ended reasoning_parser_kwargs",
    ),
    (
        22,
        "request_id prompt_token_ids mm_features sampling_params pooling_params arrival_time \
         lora_request cache_salt data_parallel_rank prompt_embeds prompt_is_token_ids \
         client_index current_wave priority trace_headers resumable external_req_id \
         reasoning_ended reasoning_parser_kwargs abort_immediately",
    ),
    (
        28,
        "request_id prompt_token_ids mm_features sampling_params pooling_params arrival_time \
         lora_request cache_salt data_parallel_rank prompt_embeds prompt_is_token_ids \
         client_index current_wave priority trace_headers resumable external_req_id \
         reasoning_ended reasoning_parser_kwargs abort_immediately session_id",
    ),
    (
        32,
        "request_id prompt_token_ids mm_features sampling_params pooling_params arrival_time \
         lora_request cache_salt data_parallel_rank prompt_embeds prompt_is_token_ids \
         client_index current_wave priority trace_headers resumable external_req_id \
         reasoning_ended reasoning_parser_kwargs abort_immediately session_id kv_hints",
    ),
];

/// `EngineCoreOutput`.
pub(super) const OUTPUT: &[Row] = &[
    (
        8,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors finish_reason \
         stop_reason events",
    ),
    (
        9,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params num_cached_tokens",
    ),
    (
        10,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params trace_headers num_cached_tokens",
    ),
    (
        11,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params trace_headers num_cached_tokens \
         num_nans_in_logits",
    ),
    (
        14,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params trace_headers num_cached_tokens \
         routed_experts num_nans_in_logits",
    ),
    (
        16,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params trace_headers num_cached_tokens \
         num_external_computed_tokens routed_experts num_nans_in_logits",
    ),
    (
        20,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params trace_headers prefill_stats \
         routed_experts num_nans_in_logits",
    ),
    (
        28,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params ec_transfer_params trace_headers \
         prefill_stats routed_experts num_nans_in_logits mm_cache_miss_hashes new_sampling_mask",
    ),
    (
        30,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params ec_transfer_params trace_headers \
         prefill_stats routed_experts num_nans_in_logits mm_cache_miss_hashes new_sampling_mask \
         spec_decode_metrics",
    ),
    (
        32,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params ec_transfer_params trace_headers \
         prefill_stats routed_experts num_nans_in_logits mm_cache_miss_hashes new_sampling_mask \
         spec_decode_metrics prompt_token_id_logprobs",
    ),
    (
        33,
        "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output \
         finish_reason stop_reason events kv_transfer_params ec_transfer_params trace_headers \
         prefill_stats routed_experts num_nans_in_logits mm_cache_miss_hashes new_sampling_mask \
         spec_decode_metrics prompt_token_id_logprobs error",
    ),
];

/// `EngineCoreOutputs`.
pub(super) const OUTPUTS: &[Row] = &[
    (
        8,
        "engine_index outputs scheduler_stats timestamp utility_output finished_requests \
         wave_complete start_wave",
    ),
    (
        32,
        "engine_index outputs scheduler_stats timestamp utility_output finished_requests \
         wave_complete start_wave weight_version",
    ),
];

/// `SamplingParams`, whose order matters in V0's pickles only (to 0.10.2). Read from the sources of 0.6.6, 0.7.3, 0.8.5,
/// 0.9.2 and 0.10.2.
pub(super) const SAMPLING: &[Row] = &[
    (
        6,
        "n best_of _real_n presence_penalty frequency_penalty repetition_penalty temperature top_p \
         top_k min_p seed stop stop_token_ids bad_words ignore_eos max_tokens min_tokens logprobs \
         prompt_logprobs detokenize skip_special_tokens spaces_between_special_tokens \
         logits_processors include_stop_str_in_output truncate_prompt_tokens output_kind \
         output_text_buffer_length _all_stop_token_ids guided_decoding logit_bias allowed_token_ids",
    ),
    (
        8,
        "n best_of _real_n presence_penalty frequency_penalty repetition_penalty temperature top_p \
         top_k min_p seed stop stop_token_ids ignore_eos max_tokens min_tokens logprobs \
         prompt_logprobs detokenize skip_special_tokens spaces_between_special_tokens \
         logits_processors include_stop_str_in_output truncate_prompt_tokens output_kind \
         output_text_buffer_length _all_stop_token_ids guided_decoding logit_bias \
         allowed_token_ids extra_args bad_words _bad_words_token_ids",
    ),
];
