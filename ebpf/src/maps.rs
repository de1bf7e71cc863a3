//! The maps, the read-only configuration, and the scratch memory of each CPU.

use core::ptr;

use aya_ebpf::btf_maps::{ArrayOfMaps, HashMap, LruHashMap, PerCpuArray, ProgramArray, RingBuf};
use aya_ebpf::macros::btf_map;
use enginetap_common::config::{
    Config, FILTER_BUCKETS, JUMPS, MAX_CONNS, MAX_GC_CALLS, MAX_OWED, MAX_RINGS, MAX_SYSCALLS, MAX_TLS, MAX_TLS_CALLS,
    MAX_WATCHED, TLS_SCRATCHES,
};
use enginetap_common::loss::Loss;
use enginetap_common::record::PIECE_LEN;
use enginetap_common::sample::{Sample, Walk};
use enginetap_common::watch::{Conn, FdKey, Owed, Slot, TlsKey};

use crate::emit::Head;
use crate::gc::Collection;
use crate::tls::{Frame, Pending};

/// Processes watched, by tgid. The value means nothing.
#[btf_map]
pub static WATCHED: HashMap<u32, u32, { MAX_WATCHED as usize }> = HashMap::new();

/// Descriptors that are connections.
#[btf_map]
pub static FDS: HashMap<FdKey, Slot, { MAX_CONNS as usize }> = HashMap::new();

/// Connections, by id.
#[btf_map]
pub static CONNS: HashMap<u64, Conn, { MAX_CONNS as usize }> = HashMap::new();

/// Closes that have yet to return although the number was given out anew. One that never returns goes when room is needed.
#[btf_map]
pub static OWED: LruHashMap<FdKey, Owed, { MAX_OWED as usize }> = LruHashMap::new();

/// How many processes are watched whose id has these lowest bits: what every system call of the machine looks at. A
/// plain global, since reading it is one load, where a look-up in a hash map is a call. Not mangled, as all globals here: a
/// mangled name depends on where the repository lies.
#[unsafe(no_mangle)]
static mut FILTER: [u32; FILTER_BUCKETS] = [0; FILTER_BUCKETS];

/// Where the process id stands in the kernel's `struct task_struct`; 0 until [`crate::control`] has found it.
#[unsafe(no_mangle)]
static mut TASK_PID: u32 = 0;

/// The programs behind `sys_exit`, by [`enginetap_common::record::Call`] or [`enginetap_common::config::NEW_FD`].
#[btf_map]
pub static JUMP: ProgramArray<{ JUMPS as usize }> = ProgramArray::new();

/// One ring a CPU, or a ring for several CPUs where there are many. Filled in by the agent.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<u8, 4096>, { MAX_RINGS as usize }> = ArrayOfMaps::new();

/// Counters by [`Loss`].
#[btf_map]
pub static LOSSES: PerCpuArray<u64, { Loss::ALL.len() }> = PerCpuArray::new();

/// The last connection id given on this CPU.
#[btf_map]
pub static LAST_ID: PerCpuArray<u64, 1> = PerCpuArray::new();

/// What a CPU works on. Only programs behind `sys_exit` use it, and the kernel does not nest those.
#[btf_map]
pub static WORK: PerCpuArray<Work, 1> = PerCpuArray::new();

/// TLS connections.
#[btf_map]
pub static TLS: HashMap<TlsKey, Slot, { MAX_TLS as usize }> = HashMap::new();

/// Calls of TLS libraries that have begun, by where their thread's stack was. One whose end is never seen is pushed
/// out by later ones.
#[btf_map]
pub static TLS_CALLS: LruHashMap<Frame, Pending, { MAX_TLS_CALLS as usize }> = LruHashMap::new();

/// Garbage collections that have begun, by where their thread's stack was.
#[btf_map]
pub static GC_CALLS: LruHashMap<Frame, Collection, { MAX_GC_CALLS as usize }> = LruHashMap::new();

/// Processes whose Python is sampled. As the two below: of one entry, or page, until there is profiling.
#[btf_map]
pub static SAMPLED: HashMap<u32, u32, 1> = HashMap::new();

/// How the frames of their threads are walked.
#[btf_map]
pub static THREADS: HashMap<u32, Walk, 1> = HashMap::new();

/// The samples.
#[btf_map]
pub static SAMPLES: RingBuf<Sample, 4096> = RingBuf::new();

/// What a CPU's programs on TLS libraries work on. Unlike those behind `sys_exit` they may be interrupted by each
/// other where the kernel is preemptible: so there are several, and each is taken before it is used.
#[btf_map]
pub static TLS_WORK: PerCpuArray<Scratch, { TLS_SCRATCHES as usize }> = PerCpuArray::new();

/// A [`Work`] that must be taken.
#[repr(C)]
pub struct Scratch {
    /// How many programs are at it: the first one has it.
    pub users: u64,
    /// What it is.
    pub work: Work,
}

/// The system call in hand, and the record made of it.
#[repr(C)]
pub struct Work {
    /// The call.
    pub call: Syscall,
    /// How far the call has been written out.
    pub progress: Progress,
    /// The record's head, followed at once by its payload.
    pub head: Head,
    /// The record's payload.
    pub payload: [u8; PIECE_LEN],
}

/// How far a call has been written out. It lies in memory, not in registers, so that the verifier sees the same
/// unknown numbers each time around a loop, and goes around once.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Progress {
    /// Bytes to copy.
    pub copy: u64,
    /// Bytes written out.
    pub at: u64,
    /// Records that found no room.
    pub missed: u64,
    /// The list of buffers of a vectored call.
    pub list: u64,
    /// How many buffers there are.
    pub count: u64,
    /// Which buffer comes next.
    pub next: u64,
    /// What is left of the buffer in hand: where.
    pub base: u64,
    /// What is left of the buffer in hand: how much.
    pub left: u64,
}

/// A system call that has returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Syscall {
    /// A [`enginetap_common::record::Call`], or [`enginetap_common::config::NEW_FD`].
    pub number: u32,
    /// Which message of a `sendmmsg` or `recvmmsg` comes next.
    pub message: u32,
    /// What it returned.
    pub ret: i64,
    /// Its first arguments.
    pub args: [u64; 4],
    /// The connection it was made on; 0 where that is not known yet.
    pub conn: u64,
}

/// The configuration; written by the agent before the programs are loaded.
#[unsafe(no_mangle)]
static CONFIG: Config = Config::EMPTY;

/// Reads one field of [`CONFIG`] so that the compiler takes it for unknown and the verifier for constant.
macro_rules! config {
    ($field:ident) => {
        $crate::maps::read(&raw const (*$crate::maps::config_ptr()).$field)
    };
}
pub(crate) use config;

/// Where the configuration lies.
#[inline(always)]
pub fn config_ptr() -> *const Config {
    &raw const CONFIG
}

/// The bucket of a process in the filter.
#[inline(always)]
pub fn bucket(pid: u32) -> *mut u32 {
    // SAFETY: inside the table, by the mask.
    unsafe { (&raw mut FILTER).cast::<u32>().add(pid as usize & (FILTER_BUCKETS - 1)) }
}

/// Where [`TASK_PID`] lies.
#[inline(always)]
pub fn task_pid() -> *mut u32 {
    &raw mut TASK_PID
}

/// A volatile read.
///
/// # Safety
/// `at` points into [`CONFIG`] or another global.
#[inline(always)]
pub unsafe fn read<T: Copy>(at: *const T) -> T {
    // SAFETY: by the caller.
    unsafe { ptr::read_volatile(at) }
}

/// What the dispatch table says of a system call number; 0: of no interest.
#[inline(always)]
pub fn call_of(number: u64) -> u8 {
    if number >= MAX_SYSCALLS as u64 {
        return 0;
    }
    // SAFETY: inside the table, by the test above.
    unsafe { read((&raw const (*config_ptr()).calls).cast::<u8>().add(number as usize)) }
}
