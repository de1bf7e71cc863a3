//! The arguments of a system call, out of the registers that the kernel saved at its entry.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use enginetap_common::config::Machine;

use crate::maps::config;

/// Number and arguments of a system call.
pub struct Regs {
    /// Its number.
    pub number: u64,
    /// Its first four arguments.
    pub args: [u64; 4],
}

/// Reads them from a `struct pt_regs`. They are the same at the call's entry and at its exit.
#[inline(always)]
pub fn read(regs: *const c_void) -> Option<Regs> {
    // SAFETY: a field of the configuration.
    if unsafe { config!(machine) } == Machine::X86_64 as u32 { x86_64(regs) } else { aarch64(regs) }
}

/// `arch/x86/include/asm/ptrace.h`: r10 at 56, r9, r8, ax, cx, dx, si, di, orig_ax at 120.
#[inline(always)]
fn x86_64(regs: *const c_void) -> Option<Regs> {
    let [r10, _, _, _, _, dx, si, di, orig_ax] = words::<9>(regs, 56)?;
    Some(Regs { number: orig_ax, args: [di, si, dx, r10] })
}

/// `arch/arm64/include/asm/ptrace.h`: x0 to x30 at 0 (x0 overwritten by the result), orig_x0 at 272, then the
/// number as a 32-bit word.
#[inline(always)]
fn aarch64(regs: *const c_void) -> Option<Regs> {
    let [_, x1, x2, x3] = words::<4>(regs, 0)?;
    let [orig_x0, number] = words::<2>(regs, 272)?;
    Some(Regs { number: number & 0xffff_ffff, args: [orig_x0, x1, x2, x3] })
}

/// A function of the process being entered or left.
#[derive(Clone, Copy)]
pub struct Function {
    /// Its first four arguments; at its end whatever has become of those registers.
    pub args: [u64; 4],
    /// The stack pointer: the same at the function's first instruction and at each of its `ret`.
    pub stack: u64,
    /// What it returns, at its end.
    pub result: u64,
}

/// Reads them from the `struct pt_regs` of a probe on an instruction.
#[inline(always)]
pub fn function(regs: *const c_void) -> Option<Function> {
    // SAFETY: a field of the configuration.
    if unsafe { config!(machine) } == Machine::X86_64 as u32 {
        // ax at 80, cx, dx, si, di, orig_ax, ip, cs, flags, sp at 152.
        let [ax, cx, dx, si, di, _, _, _, _, stack] = words::<10>(regs, 80)?;
        return Some(Function { args: [di, si, dx, cx], stack, result: ax });
    }
    let args = words::<4>(regs, 0)?;
    // sp behind x30.
    let [stack] = words::<1>(regs, 248)?;
    Some(Function { args, stack, result: args[0] })
}

#[inline(always)]
fn words<const N: usize>(regs: *const c_void, offset: usize) -> Option<[u64; N]> {
    kernel(regs.addr() as u64 + offset as u64)
}

/// Reads a value from the kernel's memory.
#[inline(always)]
pub fn kernel<T: Copy>(at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the source and writes the whole value, also when it fails (zeroes).
    unsafe {
        let source = ptr::without_provenance(at as usize);
        let failed = bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, source);
        (failed == 0).then(|| value.assume_init())
    }
}
