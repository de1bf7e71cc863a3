//! A request inside SGLang: what its messages, its scheduler's objects and its frontend's add up to.

use std::collections::BTreeMap;

use super::moment::{Moment, Slot, Source};
use super::timeline::Timeline;
use crate::dialect::signal::sglang::{FrontendTimes, Hop, SglangFinish, SglangOutput, SglangRequest};
use crate::ids::{ExchangeId, Pid};
use crate::time::{MonoTime, Seconds};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The engine finished it.
    Finished,
    /// It was taken back, refused or given up by the engine.
    Aborted,
    /// One of its processes died.
    Died,
    /// Nothing more came for too long, or there were too many.
    Expired,
    /// The agent went away first.
    Detached,
}

/// The frontend's side of a request (`APIServerReqTimeStats`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frontend {
    /// It was taken up.
    pub created: Slot,
    /// It was tokenized.
    pub tokenized: Slot,
    /// Sending it to the scheduler began.
    pub dispatch: Slot,
    /// It was sent.
    pub dispatched: Slot,
    /// Its first output came.
    pub first_token: Slot,
    /// Its last output came.
    pub last_token: Slot,
    /// It was done.
    pub finished: Slot,
}

/// A request inside SGLang.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Its id.
    pub rid: String,
    /// As the scheduler got it; `None`: it was there before the agent.
    pub handed: Option<SglangRequest>,
    /// The frontend process it passed through.
    pub pid: Option<Pid>,
    /// In which place it was handed over, counted per server.
    pub order: u64,
    /// The frontend's moments.
    pub frontend: Frontend,
    /// When a data-parallel controller passed it on, and that process.
    pub controller: Option<(Pid, MonoTime)>,
    /// What each scheduler process did with it.
    pub schedulers: BTreeMap<Pid, Timeline>,
    /// The scheduler process that speaks for it.
    pub speaker: Option<Pid>,
    /// Data-parallel rank, where it was told.
    pub dp_rank: Option<u32>,
    /// Joins both nodes' parts.
    pub bootstrap_room: Option<u64>,
    /// Prompt tokens, as the engine counts them.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens served from the cache.
    pub cached_tokens: Option<u64>,
    /// Why it ended, by the engine.
    pub finish: Option<SglangFinish>,
    /// When the scheduler was done with it, as far as only it said so.
    pub done_at: Option<MonoTime>,
    /// When the frontend took it back.
    pub abort_at: Option<MonoTime>,
    /// How and when it ended.
    pub ending: Option<(Ending, MonoTime)>,
    /// The request that parallel samples were asked for by, where this one only fills the cache for them: its id, and
    /// what the frontend's objects held of it.
    pub parent: Option<(String, FrontendTimes)>,
    /// The exchange it belongs to, once known.
    pub exchange: Option<ExchangeId>,
    /// When it was first seen.
    pub since: MonoTime,
    /// Last sign of life.
    pub touched: MonoTime,
    /// What the metrics have counted of it.
    pub counted: Counted,
}

/// What the metrics have counted of a request (`ReqState` of `sglang/srt/managers/tokenizer_manager.py`, 0.5.23).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// The time to its first token is to be counted: it had a first output.
    pub first_due: bool,
    /// The time to its first token was counted.
    pub first: bool,
    /// Tokens at the last interval counted.
    pub tokens: u64,
    /// When that interval ended.
    pub last: Option<Moment>,
    /// Its end was counted.
    pub end: bool,
    /// Its end is to be counted; the time it took is not known yet.
    pub duration_due: bool,
}

impl Request {
    /// A request of which nothing is known but its id.
    pub fn seen(rid: &str, at: MonoTime) -> Self {
        Self {
            rid: rid.to_owned(),
            handed: None,
            pid: None,
            order: u64::MAX,
            frontend: Frontend::default(),
            controller: None,
            schedulers: BTreeMap::new(),
            speaker: None,
            dp_rank: None,
            bootstrap_room: None,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            finish: None,
            done_at: None,
            abort_at: None,
            ending: None,
            parent: None,
            exchange: None,
            since: at,
            touched: at,
            counted: Counted::default(),
        }
    }

    /// It was handed to the scheduler.
    pub fn handed(&mut self, pid: Pid, at: MonoTime, order: u64, request: SglangRequest) {
        if self.handed.is_some() {
            return;
        }
        self.pid = Some(pid);
        self.order = order;
        self.since = self.since.min(at);
        self.frontend.dispatched.seen(at, Source::Frontend);
        self.prompt_tokens = self.prompt_tokens.or(request.prompt_tokens.map(u64::from));
        self.dp_rank = self.dp_rank.or(request.dp_rank);
        self.bootstrap_room = self.bootstrap_room.or(request.bootstrap_room);
        self.handed = Some(request);
    }

    /// What the frontend's objects held of it.
    pub fn frontend(&mut self, times: &FrontendTimes) {
        let FrontendTimes { created, tokenized, dispatch, dispatched, first_token, last_token: _, finished } =
            *times;
        let frontend = &mut self.frontend;
        frontend.created.engine(created);
        frontend.tokenized.engine(tokenized);
        frontend.dispatch.engine(dispatch);
        frontend.dispatched.engine(dispatched);
        frontend.first_token.engine(first_token);
        frontend.finished.engine(finished);
    }

    /// Whether the agent came after its start.
    pub fn partial(&self) -> bool {
        self.handed.is_none()
    }

    /// Whether every token is sent as it comes.
    pub fn streams(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.stream)
    }

    /// Whether it is an embedding or a score.
    pub fn embedding(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.embedding)
    }

    /// The prefill before parallel samples, which only fills the cache.
    pub fn warms_up(&self) -> bool {
        let sampling = self.handed.as_ref().and_then(|handed| handed.sampling.as_ref());
        sampling.is_some_and(|sampling| sampling.max_new_tokens == Some(0))
    }

    /// The requests to show in its place. SGLang hands the scheduler the clock of the request that parallel samples were
    /// asked for by, together with the id of the one that fills the cache (`TokenizerManager._handle_batch_request`, 0.5.23):
    /// the work is the former's, and the latter is never done with being tokenized.
    pub fn shown(&self) -> Vec<Self> {
        let Some((rid, times)) = &self.parent else { return vec![self.clone()] };
        let mut parent = Self {
            rid: rid.clone(),
            frontend: Frontend::default(),
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            finish: None,
            parent: None,
            ..self.clone()
        };
        parent.frontend(times);
        let mut filler = Self { schedulers: BTreeMap::new(), parent: None, ..self.clone() };
        filler.frontend.tokenized = filler.frontend.finished;
        filler.frontend.dispatch = Slot::default();
        filler.frontend.dispatched = filler.frontend.finished;
        vec![parent, filler]
    }

    /// The timeline of the scheduler that speaks for it.
    pub fn spoken(&self) -> Option<&Timeline> {
        self.schedulers.get(&self.speaker?)
    }

    /// Takes counts and reason of an output.
    pub fn output(&mut self, output: &SglangOutput, at: MonoTime, hop: Hop) {
        let SglangOutput {
            rid: _,
            finish,
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            reasoning_tokens: _,
            retractions: _,
            spec_verify_steps: _,
            spec_accepted: _,
            dp_rank,
            embedding: _,
            times: _,
        } = output;
        self.touched = self.touched.max(at);
        self.prompt_tokens = prompt_tokens.or(self.prompt_tokens);
        self.completion_tokens = (*completion_tokens).max(self.completion_tokens);
        self.cached_tokens = cached_tokens.or(self.cached_tokens);
        self.dp_rank = dp_rank.or(self.dp_rank);
        if let Some(finish) = finish {
            self.finish.get_or_insert_with(|| finish.clone());
            self.done_at.get_or_insert(at);
        }
        match hop {
            Hop::Scheduler => {}
            Hop::Frontend => self.arrived(at, finish.is_some()),
        }
    }

    /// An output reached the frontend. Of a request that is not streamed, the frontend takes the scheduler's word on
    /// when its first token came (`_get_scheduler_first_token_time`).
    fn arrived(&mut self, at: MonoTime, last: bool) {
        let arrival = Moment::seen(at, Source::Frontend);
        if !self.frontend.first_token.is_some() {
            let told = self.prefilled().filter(|_| !self.streams());
            let created = self.frontend.created.get().map(|moment| moment.at);
            let told =
                told.filter(|told| told.at <= arrival.at && created.is_none_or(|created| created < told.at));
            self.frontend.first_token.tell(told.map_or(arrival, |told| Moment { at: told.at, ..arrival }));
        }
        self.frontend.last_token = Slot::default();
        self.frontend.last_token.tell(arrival);
        if last {
            self.frontend.finished.tell(arrival);
        }
    }

    /// The end of its first prefill, where the engine told it.
    fn prefilled(&self) -> Option<Moment> {
        self.spoken()?.rounds.first()?.prefilled.get().filter(|moment| moment.exact())
    }

    /// From its being taken up to a moment.
    pub fn since_created(&self, moment: Slot) -> Option<Seconds> {
        let created = self.frontend.created.get()?;
        Some(moment.get()?.at.since(created.at))
    }

    /// Ends it, once.
    pub fn end(&mut self, ending: Ending, at: MonoTime) {
        self.ending.get_or_insert((ending, at));
    }

    /// How a request ended that the engine finished.
    pub fn by_engine(&self) -> Ending {
        match &self.finish {
            Some(finish) if finish.kind == "abort" => Ending::Aborted,
            Some(_) | None => Ending::Finished,
        }
    }

    /// Whether it ended as it should.
    pub fn normal(&self) -> bool {
        self.ending.is_some_and(|(ending, _)| ending == Ending::Finished)
    }
}

/// Whether an id is that of a health check's request (`HEALTH_CHECK_RID_PREFIX`).
pub(super) fn health_check(rid: &str) -> bool {
    rid.starts_with("HEALTH_CHECK")
}
