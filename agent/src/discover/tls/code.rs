//! Where a function returns, found in its machine code. Probes on those instructions need no return probe, which would
//! write to the target's stack.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// Most instructions followed of one function: OpenSSL's have a few dozen.
const MAX_INSTRUCTIONS: usize = 8192;

/// Most `ret` instructions of one function.
const MAX_RETURNS: usize = 32;

/// A machine whose code can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// Why a function's `ret` instructions cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// A jump to an address that only the running program knows.
    #[error("it ends in a jump whose target only the running program knows (at {0:#x})")]
    Indirect(u64),
    /// Bytes that are no instruction, or none at all.
    #[error("its machine code cannot be read at {0:#x}")]
    Unreadable(u64),
    /// Not a function of the usual kind.
    #[error("it is too long to be followed")]
    TooLong,
    /// It never returns.
    #[error("it never returns")]
    NoReturn,
}

/// One instruction, as far as it matters.
enum Step {
    /// Goes on behind it.
    Next(u64),
    /// Goes on behind it, or at the second address.
    Either(u64, u64),
    /// Goes on elsewhere.
    Jump(u64),
    /// Goes on where a register or the memory says.
    Indirect,
    /// Back to the caller.
    Return,
    /// Does not go on.
    Stop,
    /// More bytes are needed.
    Short,
    /// No instruction.
    Bad,
}

/// The `ret` instructions of the function at `start` with `size` bytes (0 where that is not known), those of functions
/// that it ends in by a jump too. `code` gives the bytes from an address on, some or all of those there are.
///
/// # Errors
/// A [`CodeError`], where they cannot be told for sure.
pub fn returns<'a>(
    machine: Machine,
    start: u64,
    size: u64,
    code: &dyn Fn(u64) -> Option<&'a [u8]>,
) -> Result<Vec<u64>, CodeError> {
    let end = if size == 0 { u64::MAX } else { start.saturating_add(size) };
    let mut walk = Walk { machine, code, seen: BTreeSet::new(), todo: vec![start], returns: BTreeSet::new() };
    while let Some(at) = walk.todo.pop() {
        walk.follow(at, end)?;
    }
    match walk.returns.len() {
        0 => Err(CodeError::NoReturn),
        1..=MAX_RETURNS => Ok(walk.returns.into_iter().collect()),
        _ => Err(CodeError::TooLong),
    }
}

/// The first instruction that does something of the function at `start`: behind `endbr64` and fillers, which change no
/// register. The kernel steps over those more slowly, and takes a five-byte filler for a place of its own kind.
pub fn entry<'a>(machine: Machine, start: u64, code: &dyn Fn(u64) -> Option<&'a [u8]>) -> u64 {
    let mut at = start;
    while machine == Machine::X86_64
        && let Some(bytes) = code(at)
        && let (Step::Next(next), Mnemonic::Endbr64 | Mnemonic::Nop) = x86_64(at, bytes)
    {
        at = next;
    }
    at
}

struct Walk<'c, 'a> {
    machine: Machine,
    code: &'c dyn Fn(u64) -> Option<&'a [u8]>,
    seen: BTreeSet<u64>,
    todo: Vec<u64>,
    returns: BTreeSet<u64>,
}

impl Walk<'_, '_> {
    /// Follows the code from `at` to where it goes no further in a line. `end`: of the function; what lies behind a call
    /// that does not return may be the next one.
    fn follow(&mut self, mut at: u64, end: u64) -> Result<(), CodeError> {
        loop {
            let bytes = (self.code)(at).filter(|bytes| !bytes.is_empty()).ok_or(CodeError::Unreadable(at))?;
            let mut rest = bytes;
            loop {
                if !self.seen.insert(at) {
                    return Ok(());
                }
                if self.seen.len() > MAX_INSTRUCTIONS {
                    return Err(CodeError::TooLong);
                }
                let next = match step(self.machine, at, rest) {
                    Step::Next(next) => next,
                    Step::Either(next, target) => {
                        self.todo.push(target);
                        next
                    }
                    Step::Jump(target) => {
                        self.todo.push(target);
                        return Ok(());
                    }
                    Step::Return => {
                        self.returns.insert(at);
                        return Ok(());
                    }
                    Step::Stop => return Ok(()),
                    Step::Indirect => return Err(CodeError::Indirect(at)),
                    Step::Short if rest.len() < bytes.len() => {
                        self.seen.remove(&at);
                        break;
                    }
                    Step::Short | Step::Bad => return Err(CodeError::Unreadable(at)),
                };
                if at < end && next >= end {
                    return Ok(());
                }
                let len = usize::try_from(next.saturating_sub(at)).unwrap_or(usize::MAX);
                rest = rest.get(len..).unwrap_or_default();
                at = next;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}

fn step(machine: Machine, at: u64, bytes: &[u8]) -> Step {
    match machine {
        Machine::X86_64 => x86_64(at, bytes).0,
        Machine::Aarch64 => aarch64(at, bytes),
    }
}

fn x86_64(at: u64, bytes: &[u8]) -> (Step, Mnemonic) {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    decoder.decode_out(&mut instruction);
    let (next, target) = (instruction.next_ip(), instruction.near_branch_target());
    let step = match instruction.flow_control() {
        _ if instruction.is_invalid() => {
            if decoder.last_error() == DecoderError::NoMoreBytes {
                Step::Short
            } else {
                Step::Bad
            }
        }
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall | FlowControl::XbeginXabortXend => {
            Step::Next(next)
        }
        FlowControl::ConditionalBranch => Step::Either(next, target),
        FlowControl::UnconditionalBranch => Step::Jump(target),
        FlowControl::IndirectBranch => Step::Indirect,
        FlowControl::Return => Step::Return,
        FlowControl::Interrupt | FlowControl::Exception => Step::Stop,
    };
    (step, instruction.mnemonic())
}

/// Arm Architecture Reference Manual, C4.1.86 (branches, exception generating and system instructions).
fn aarch64(at: u64, bytes: &[u8]) -> Step {
    let Some((word, _)) = bytes.split_first_chunk::<4>() else { return Step::Short };
    let word = u32::from_le_bytes(*word);
    let next = at.wrapping_add(4);
    let to = |bits: u32, shift: u32| at.wrapping_add_signed(signed(word >> shift, bits) * 4);
    match word {
        // ret, retaa, retab
        0xd65f_0000..=0xd65f_03e0 | 0xd65f_0bff | 0xd65f_0fff => Step::Return,
        // udf, brk
        _ if word & 0xffff_0000 == 0 || word & 0xffe0_0000 == 0xd420_0000 => Step::Stop,
        // b
        _ if word >> 26 == 0b000_101 => Step::Jump(to(26, 0)),
        // b.cond, bc.cond
        _ if word >> 24 == 0x54 => Step::Either(next, to(19, 5)),
        // cbz, cbnz
        _ if (word >> 25) & 0x3f == 0b01_1010 => Step::Either(next, to(19, 5)),
        // tbz, tbnz
        _ if (word >> 25) & 0x3f == 0b01_1011 => Step::Either(next, to(14, 5)),
        // br, braa and so on; blr and its kind come back
        _ if word & 0xfe60_0000 == 0xd600_0000 && word & 0x0020_0000 == 0 => Step::Indirect,
        _ => Step::Next(next),
    }
}

/// The lowest `bits` bits as a signed number.
fn signed(word: u32, bits: u32) -> i64 {
    let shift = 32 - bits;
    #[allow(clippy::cast_possible_wrap, reason = "that is the point")]
    let word = (word << shift) as i32;
    i64::from(word >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `code` from an address on: it lies at 0x1000 and is given in pieces of `piece` bytes.
    fn from<'a>(code: &'a [u8], piece: usize) -> impl Fn(u64) -> Option<&'a [u8]> {
        move |at| {
            let rest = code.get(usize::try_from(at.checked_sub(0x1000)?).ok()?..)?;
            Some(&rest[..rest.len().min(piece)])
        }
    }

    fn of(machine: Machine, size: u64, code: &[u8], piece: usize) -> Result<Vec<u64>, CodeError> {
        returns(machine, 0x1000, size, &from(code, piece))
    }

    #[test]
    fn the_return_of_debians_ssl_read_ex_is_its_last_instruction() {
        // OpenSSL 3.0.19, Debian 12: sub, call, xor, test, cmovs, add, four xor, ret.
        let code = [
            0x48, 0x83, 0xec, 0x08, 0xe8, 0xc7, 0xfd, 0xff, 0xff, 0x31, 0xd2, 0x85, 0xc0, 0x0f, 0x48, 0xc2,
            0x48, 0x83, 0xc4, 0x08, 0x31, 0xd2, 0x31, 0xc9, 0x31, 0xf6, 0x31, 0xff, 0xc3,
        ];
        // The tail of a piece may be half an instruction.
        for piece in [100, 17, 16] {
            assert_eq!(of(Machine::X86_64, 29, &code, piece), Ok(vec![0x101c]), "{piece}");
            assert_eq!(entry(Machine::X86_64, 0x1000, &from(&code, piece)), 0x1000);
        }
    }

    #[test]
    fn both_ways_of_a_branch_and_a_jump_out_of_the_function_are_followed() {
        // endbr64; test edi, edi; js +1; ret; jmp +2; (int3 int3;) nop; repz ret
        let code =
            [0xf3, 0x0f, 0x1e, 0xfa, 0x85, 0xff, 0x78, 0x01, 0xc3, 0xeb, 0x02, 0xcc, 0xcc, 0x90, 0xf3, 0xc3];
        assert_eq!(of(Machine::X86_64, 11, &code, 100), Ok(vec![0x1008, 0x100e]));
        assert_eq!(entry(Machine::X86_64, 0x1000, &from(&code, 100)), 0x1004);
    }

    #[test]
    fn what_lies_behind_a_call_that_does_not_return_is_not_the_functions() {
        // test edi, edi; je +1; ret; call abort | the next function: ret
        let code = [0x85, 0xff, 0x74, 0x01, 0xc3, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(of(Machine::X86_64, 10, &code, 100), Ok(vec![0x1004]));
    }

    #[test]
    fn code_that_cannot_be_followed_says_so() {
        // jmp rax
        assert_eq!(of(Machine::X86_64, 0, &[0xff, 0xe0], 9), Err(CodeError::Indirect(0x1000)));
        // jmp to itself
        assert_eq!(of(Machine::X86_64, 0, &[0xeb, 0xfe], 9), Err(CodeError::NoReturn));
        // no instruction of 64-bit mode; half a call; nothing
        assert_eq!(of(Machine::X86_64, 0, &[0x06], 9), Err(CodeError::Unreadable(0x1000)));
        assert_eq!(of(Machine::X86_64, 0, &[0xe8, 0], 9), Err(CodeError::Unreadable(0x1000)));
        assert_eq!(of(Machine::X86_64, 0, &[], 9), Err(CodeError::Unreadable(0x1000)));
        assert_eq!(of(Machine::X86_64, 0, &[0x90; 10_000], 9), Err(CodeError::TooLong));
        assert_eq!(
            of(Machine::Aarch64, 0, &0xd61f_0200_u32.to_le_bytes(), 9),
            Err(CodeError::Indirect(0x1000))
        );
    }

    #[test]
    fn arm_code_is_followed_too() {
        let words: [u32; 8] = [
            0xd503_233f, // paciasp
            0xb400_0060, // cbz x0, +12
            0x9400_0010, // bl
            0xd65f_0bff, // retaa
            0x3600_0041, // tbz w1, 0, +8
            0x1400_0001, // b +4
            0x5400_0020, // b.eq +4
            0xd65f_03c0, // ret
        ];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(of(Machine::Aarch64, 32, &code, 8), Ok(vec![0x100c, 0x101c]));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end(code: Vec<u8>, size: u64) {
            for machine in [Machine::X86_64, Machine::Aarch64] {
                if let Ok(found) = of(machine, size, &code, 64) {
                    proptest::prop_assert!(!found.is_empty());
                }
            }
        }
    }
}
