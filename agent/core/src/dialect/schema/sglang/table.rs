//! Field orders of SGLang 0.5.15 to 0.5.23, as `msgspec` has them: made by `tests/oracle/sglang_messages.py`.

/// A version, and the fields from it on until the next row, in order.
pub(super) type Row = ([u32; 3], &'static str);

/// Classes and their rows.
pub(super) const CLASSES: &[(&str, &[Row])] = &[
    ("TokenizedGenerateReqInput", TOKENIZED_GENERATE_REQ_INPUT),
    ("TokenizedEmbeddingReqInput", TOKENIZED_EMBEDDING_REQ_INPUT),
    ("BatchTokenizedGenerateReqInput", BATCH_TOKENIZED_GENERATE_REQ_INPUT),
    ("BatchTokenIDOutput", BATCH_TOKEN_ID_OUTPUT),
    ("BatchStrOutput", BATCH_STR_OUTPUT),
    ("BatchEmbeddingOutput", BATCH_EMBEDDING_OUTPUT),
    ("AbortReq", ABORT_REQ),
    ("SamplingParams", SAMPLING_PARAMS),
    ("BatchTokenizedEmbeddingReqInput", BATCH_TOKENIZED_GENERATE_REQ_INPUT),
    ("PickleWrapper", &[([0, 5, 15], "data")]),
];

const TOKENIZED_GENERATE_REQ_INPUT: &[Row] = &[
    (
        [0, 5, 15],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_hidden_states return_routed_experts routed_experts_start_len \
         return_indexer_topk session_id session_params lora_id custom_logit_processor \
         positional_embed_overrides bootstrap_host bootstrap_port bootstrap_room \
         bootstrap_pair_key decode_tp_size routed_dp_rank disagg_prefill_dp_rank routing_key \
         require_reasoning priority extra_key no_logs return_bytes return_entropy \
         need_wait_for_mm_inputs num_items_assigned mm_data_mooncake encoder_urls \
         multi_item_delimiter_indices time_stats",
    ),
    (
        [0, 5, 16],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_sampling_mask return_hidden_states return_routed_experts \
         routed_experts_start_len return_indexer_topk session_id session_params lora_id \
         custom_logit_processor positional_embed_overrides bootstrap_host bootstrap_port \
         bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank disagg_prefill_dp_rank \
         routing_key require_reasoning priority extra_key no_logs return_bytes return_entropy \
         need_wait_for_mm_inputs num_items_assigned mm_data_mooncake encoder_urls \
         multi_item_delimiter_indices time_stats",
    ),
    (
        [0, 5, 17],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_sampling_mask return_flat_raw_top_logprobs return_hidden_states \
         return_routed_experts routed_experts_start_len return_indexer_topk session_id \
         session_params lora_id custom_logit_processor positional_embed_overrides bootstrap_host \
         bootstrap_port bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank \
         disagg_prefill_dp_rank routing_key require_reasoning priority extra_key no_logs \
         return_bytes return_entropy need_wait_for_mm_inputs num_items_assigned mm_data_mooncake \
         encoder_urls multi_item_delimiter_indices time_stats",
    ),
    (
        [0, 5, 18],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_sampling_mask return_flat_raw_top_logprobs return_hidden_states \
         return_routed_experts routed_experts_start_len return_indexer_topk session_id \
         session_params lora_id custom_logit_processor positional_embed_overrides bootstrap_host \
         bootstrap_port bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank \
         disagg_prefill_dp_rank routing_key require_reasoning priority extra_key no_logs \
         return_bytes return_entropy need_wait_for_mm_inputs num_items_assigned mm_data_mooncake \
         encoder_urls multi_item_delimiter_indices time_stats cache_salt",
    ),
    (
        [0, 5, 19],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_sampling_mask return_flat_raw_top_logprobs return_hidden_states \
         return_routed_experts routed_experts_start_len return_indexer_topk session_id \
         session_params lora_id custom_logit_processor positional_embed_overrides bootstrap_host \
         bootstrap_port bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank \
         disagg_prefill_dp_rank routing_key require_reasoning priority extra_key no_logs \
         return_bytes return_entropy need_wait_for_mm_inputs num_items_assigned encoder_urls \
         multi_item_delimiter_indices time_stats cache_salt",
    ),
    (
        [0, 5, 21],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_sampling_mask return_flat_raw_top_logprobs return_hidden_states \
         return_routed_experts routed_experts_start_len return_indexer_topk session_id \
         session_params lora_id custom_logit_processor positional_embed_overrides bootstrap_host \
         bootstrap_port bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank \
         disagg_prefill_dp_rank routing_key require_reasoning priority extra_key no_logs \
         return_bytes return_entropy need_wait_for_mm_inputs num_items_assigned encoder_urls \
         multi_item_delimiter_indices token_indices_to_pool time_stats cache_salt kv_hints \
         pp_prefetch_ticketed sampling_logprobs_mode",
    ),
    (
        [0, 5, 23],
        "rid http_worker_ipc input_text input_ids input_embeds mm_inputs token_type_ids \
         sampling_params return_logprob logprob_start_len top_logprobs_num token_ids_logprob \
         stream return_sampling_mask return_flat_raw_top_logprobs return_hidden_states \
         return_routed_experts routed_experts_start_len return_indexer_topk session_id \
         session_params lora_id custom_logit_processor positional_embed_overrides bootstrap_host \
         bootstrap_port bootstrap_room bootstrap_pair_key decode_tp_size routed_dp_rank \
         disagg_prefill_dp_rank routing_key require_reasoning priority extra_key no_logs \
         return_bytes return_entropy need_wait_for_mm_inputs num_items_assigned encoder_urls \
         multi_item_delimiter_indices token_indices_to_pool time_stats cache_salt kv_hints \
         pp_prefetch_ticketed sampling_logprobs_mode lora_name",
    ),
];

const TOKENIZED_EMBEDDING_REQ_INPUT: &[Row] = &[
    (
        [0, 5, 15],
        "rid http_worker_ipc input_text input_ids mm_inputs token_type_ids sampling_params \
         lora_id positional_embed_overrides routed_dp_rank priority dimensions \
         return_pooled_hidden_states multi_item_delimiter_indices time_stats",
    ),
    (
        [0, 5, 21],
        "rid http_worker_ipc input_text input_ids mm_inputs token_type_ids sampling_params \
         lora_id positional_embed_overrides routed_dp_rank priority dimensions \
         return_pooled_hidden_states multi_item_delimiter_indices token_indices_to_pool \
         time_stats",
    ),
    (
        [0, 5, 22],
        "rid http_worker_ipc input_text input_ids mm_inputs token_type_ids sampling_params \
         lora_id positional_embed_overrides routed_dp_rank priority dimensions \
         return_pooled_hidden_states multi_item_delimiter_indices token_indices_to_pool \
         decision_layout time_stats",
    ),
    (
        [0, 5, 23],
        "rid http_worker_ipc input_text input_ids mm_inputs token_type_ids sampling_params \
         lora_id positional_embed_overrides routed_dp_rank priority dimensions \
         return_pooled_hidden_states multi_item_delimiter_indices token_indices_to_pool \
         decision_layout time_stats lora_name",
    ),
];

const BATCH_TOKENIZED_GENERATE_REQ_INPUT: &[Row] = &[([0, 5, 15], "rids http_worker_ipcs batch")];

const BATCH_TOKEN_ID_OUTPUT: &[Row] = &[
    (
        [0, 5, 15],
        "rids http_worker_ipcs finished_reasons decoded_texts decode_ids read_offsets output_ids \
         skip_special_tokens spaces_between_special_tokens no_stop_trim prompt_tokens \
         reasoning_tokens completion_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_hidden_states routed_experts indexer_topk placeholder_tokens_idx \
         placeholder_tokens_val retraction_counts token_steps customized_info \
         cached_tokens_details dp_ranks time_stats image_tokens audio_tokens video_tokens \
         spec_verify_ct spec_num_correct_drafts spec_correct_drafts_histogram",
    ),
    (
        [0, 5, 16],
        "rids http_worker_ipcs finished_reasons decoded_texts decode_ids read_offsets output_ids \
         skip_special_tokens spaces_between_special_tokens no_stop_trim prompt_tokens \
         reasoning_tokens completion_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_token_sampling_logprobs output_hidden_states \
         routed_experts indexer_topk placeholder_tokens_idx placeholder_tokens_val \
         retraction_counts token_steps customized_info cached_tokens_details dp_ranks time_stats \
         image_tokens audio_tokens video_tokens spec_verify_ct spec_num_correct_drafts \
         spec_num_block_accept_tokens spec_num_cap_tokens spec_correct_drafts_histogram \
         spec_cap_lens_histogram",
    ),
    (
        [0, 5, 17],
        "rids http_worker_ipcs finished_reasons decoded_texts decode_ids read_offsets output_ids \
         skip_special_tokens spaces_between_special_tokens no_stop_trim prompt_tokens \
         reasoning_tokens completion_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_token_sampling_logprobs output_hidden_states \
         routed_experts indexer_topk placeholder_tokens_idx placeholder_tokens_val \
         retraction_counts token_steps customized_info cached_tokens_details dp_ranks time_stats \
         image_tokens audio_tokens video_tokens spec_verify_ct spec_num_correct_drafts \
         spec_num_block_accept_tokens spec_num_cap_tokens spec_correct_drafts_histogram \
         spec_cap_lens_histogram input_top_logprobs_val_flat input_top_logprobs_idx_flat \
         input_top_logprobs_flat_null_prefix",
    ),
    (
        [0, 5, 19],
        "rids http_worker_ipcs finished_reasons decoded_texts decode_ids read_offsets output_ids \
         skip_special_tokens spaces_between_special_tokens no_stop_trim prompt_tokens \
         reasoning_tokens completion_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_token_sampling_logprobs output_hidden_states \
         routed_experts indexer_topk placeholder_tokens_idx placeholder_tokens_val \
         retraction_counts beam_search_output weight_versions token_steps customized_info \
         cached_tokens_details dp_ranks time_stats image_tokens audio_tokens video_tokens \
         spec_verify_ct spec_num_correct_drafts spec_num_block_accept_tokens spec_num_cap_tokens \
         spec_correct_drafts_histogram spec_cap_lens_histogram input_top_logprobs_val_flat \
         input_top_logprobs_idx_flat input_top_logprobs_flat_null_prefix",
    ),
    (
        [0, 5, 21],
        "rids http_worker_ipcs finished_reasons decoded_texts decode_ids read_offsets output_ids \
         skip_special_tokens spaces_between_special_tokens no_stop_trim prompt_tokens \
         reasoning_tokens completion_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_hidden_states routed_experts indexer_topk \
         placeholder_tokens_idx placeholder_tokens_val retraction_counts beam_search_output \
         weight_versions token_steps customized_info cached_tokens_details dp_ranks time_stats \
         image_tokens audio_tokens video_tokens spec_verify_ct spec_num_correct_drafts \
         spec_num_block_accept_tokens spec_num_cap_tokens spec_correct_drafts_histogram \
         spec_cap_lens_histogram input_top_logprobs_val_flat input_top_logprobs_idx_flat \
         input_top_logprobs_flat_null_prefix",
    ),
];

const BATCH_STR_OUTPUT: &[Row] = &[
    (
        [0, 5, 15],
        "rids http_worker_ipcs finished_reasons output_strs output_ids prompt_tokens \
         completion_tokens reasoning_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_hidden_states routed_experts indexer_topk placeholder_tokens_idx \
         placeholder_tokens_val retraction_counts token_steps customized_info \
         cached_tokens_details dp_ranks time_stats image_tokens audio_tokens video_tokens \
         spec_verify_ct spec_num_correct_drafts spec_correct_drafts_histogram",
    ),
    (
        [0, 5, 16],
        "rids http_worker_ipcs finished_reasons output_strs output_ids prompt_tokens \
         completion_tokens reasoning_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_token_sampling_logprobs output_hidden_states \
         routed_experts indexer_topk placeholder_tokens_idx placeholder_tokens_val \
         retraction_counts token_steps customized_info cached_tokens_details dp_ranks time_stats \
         image_tokens audio_tokens video_tokens spec_verify_ct spec_num_correct_drafts \
         spec_num_block_accept_tokens spec_num_cap_tokens spec_correct_drafts_histogram \
         spec_cap_lens_histogram",
    ),
    (
        [0, 5, 17],
        "rids http_worker_ipcs finished_reasons output_strs output_ids prompt_tokens \
         completion_tokens reasoning_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_token_sampling_logprobs output_hidden_states \
         routed_experts indexer_topk placeholder_tokens_idx placeholder_tokens_val \
         retraction_counts token_steps customized_info cached_tokens_details dp_ranks time_stats \
         image_tokens audio_tokens video_tokens spec_verify_ct spec_num_correct_drafts \
         spec_num_block_accept_tokens spec_num_cap_tokens spec_correct_drafts_histogram \
         spec_cap_lens_histogram input_top_logprobs_val_flat input_top_logprobs_idx_flat \
         input_top_logprobs_flat_null_prefix",
    ),
    (
        [0, 5, 19],
        "rids http_worker_ipcs finished_reasons output_strs output_ids prompt_tokens \
         completion_tokens reasoning_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_token_sampling_logprobs output_hidden_states \
         routed_experts indexer_topk placeholder_tokens_idx placeholder_tokens_val \
         retraction_counts beam_search_output weight_versions token_steps customized_info \
         cached_tokens_details dp_ranks time_stats image_tokens audio_tokens video_tokens \
         spec_verify_ct spec_num_correct_drafts spec_num_block_accept_tokens spec_num_cap_tokens \
         spec_correct_drafts_histogram spec_cap_lens_histogram input_top_logprobs_val_flat \
         input_top_logprobs_idx_flat input_top_logprobs_flat_null_prefix",
    ),
    (
        [0, 5, 21],
        "rids http_worker_ipcs finished_reasons output_strs output_ids prompt_tokens \
         completion_tokens reasoning_tokens cached_tokens input_token_logprobs_val \
         input_token_logprobs_idx output_token_logprobs_val output_token_logprobs_idx \
         input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val \
         output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx \
         output_token_ids_logprobs_val output_token_ids_logprobs_idx output_token_entropy_val \
         output_token_sampling_mask output_hidden_states routed_experts indexer_topk \
         placeholder_tokens_idx placeholder_tokens_val retraction_counts beam_search_output \
         weight_versions token_steps customized_info cached_tokens_details dp_ranks time_stats \
         image_tokens audio_tokens video_tokens spec_verify_ct spec_num_correct_drafts \
         spec_num_block_accept_tokens spec_num_cap_tokens spec_correct_drafts_histogram \
         spec_cap_lens_histogram input_top_logprobs_val_flat input_top_logprobs_idx_flat \
         input_top_logprobs_flat_null_prefix",
    ),
];

const BATCH_EMBEDDING_OUTPUT: &[Row] = &[(
    [0, 5, 15],
    "rids http_worker_ipcs finished_reasons embeddings prompt_tokens cached_tokens \
         placeholder_tokens_idx placeholder_tokens_val retraction_counts cached_tokens_details \
         time_stats pooled_hidden_states",
)];

const ABORT_REQ: &[Row] = &[
    ([0, 5, 15], "rid http_worker_ipc abort_all finished_reason abort_message"),
    ([0, 5, 19], "rid http_worker_ipc abort_all finished_reason abort_message weight_versions"),
];

const SAMPLING_PARAMS: &[Row] = &[
    (
        [0, 5, 15],
        "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p \
         frequency_penalty presence_penalty repetition_penalty min_new_tokens n json_schema regex \
         ebnf structural_tag ignore_eos skip_special_tokens spaces_between_special_tokens \
         no_stop_trim custom_params stream_interval logit_bias sampling_seed stop_strs \
         stop_regex_strs stop_str_max_len stop_regex_max_len is_normalized",
    ),
    (
        [0, 5, 17],
        "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p \
         frequency_penalty presence_penalty repetition_penalty min_new_tokens n json_schema regex \
         ebnf structural_tag ignore_eos skip_special_tokens spaces_between_special_tokens \
         no_stop_trim stream_interval logit_bias sampling_seed custom_params stop_strs \
         stop_regex_strs stop_str_max_len stop_regex_max_len is_normalized",
    ),
    (
        [0, 5, 19],
        "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p \
         frequency_penalty presence_penalty repetition_penalty min_new_tokens n beam_width \
         json_schema regex ebnf structural_tag ignore_eos skip_special_tokens \
         spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed \
         custom_params stop_strs stop_regex_strs stop_str_max_len stop_regex_max_len \
         is_normalized",
    ),
    (
        [0, 5, 20],
        "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p \
         frequency_penalty presence_penalty repetition_penalty min_new_tokens n beam_width \
         json_schema regex ebnf structural_tag ignore_eos skip_special_tokens \
         spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed \
         custom_params stop_strs stop_regex_strs stop_str_max_len stop_regex_max_len \
         is_normalized ebnf_full_assistant",
    ),
    (
        [0, 5, 22],
        "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p \
         frequency_penalty presence_penalty repetition_penalty min_new_tokens n beam_width \
         json_schema regex ebnf structural_tag ignore_eos skip_special_tokens \
         spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed \
         custom_params watermark stop_strs stop_regex_strs stop_str_max_len stop_regex_max_len \
         is_normalized ebnf_full_assistant",
    ),
];
