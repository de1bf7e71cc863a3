//! A process's memory, by `process_vm_readv`: the process is not stopped and nothing is written.

use std::io::IoSliceMut;

use enginetap_core::heap::{Gone, Memory, Piece};
use enginetap_core::ids::Pid;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};

/// Pieces a call; the kernel takes 1024 (`UIO_MAXIOV`).
const PIECES: usize = 1024;

/// The memory of a process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: nix::unistd::Pid,
}

impl ProcessMemory {
    /// The memory of this process.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        Self { pid: nix::unistd::Pid::from_raw(i32::try_from(pid.0).unwrap_or(i32::MAX)) }
    }

    /// Reads pieces until one of them cannot be read; how many were read whole.
    fn some(&self, pieces: &[Piece], into: &mut [u8]) -> Result<usize, Gone> {
        let remote: Vec<RemoteIoVec> = pieces.iter().filter_map(remote).collect();
        let got = match process_vm_readv(self.pid, &mut [IoSliceMut::new(into)], &remote) {
            Ok(got) => got,
            Err(Errno::ESRCH) => return Err(Gone::Ended),
            Err(Errno::EPERM | Errno::EACCES) => return Err(Gone::Forbidden),
            Err(Errno::ENOSYS) => return Err(Gone::Unsupported),
            // The first piece is not mapped.
            Err(_) => 0,
        };
        let mut end = 0;
        let whole = pieces.iter().take_while(|piece| {
            end += piece.len;
            end <= got
        });
        Ok(whole.count())
    }
}

impl Memory for ProcessMemory {
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone> {
        read.fill(false);
        let (mut next, mut start) = (0, 0);
        while next < pieces.len() {
            let batch = &pieces[next..pieces.len().min(next + PIECES)];
            let len: usize = batch.iter().map(|piece| piece.len).sum();
            let whole = self.some(batch, &mut into[start..start + len])?;
            read[next..next + whole].fill(true);
            // The piece behind those could not be read: it is passed over.
            let passed = (whole + 1).min(batch.len());
            start += batch[..passed].iter().map(|piece| piece.len).sum::<usize>();
            next += passed;
        }
        Ok(())
    }
}

fn remote(piece: &Piece) -> Option<RemoteIoVec> {
    Some(RemoteIoVec { base: usize::try_from(piece.at.0).ok()?, len: piece.len })
}

#[cfg(test)]
mod tests {
    use enginetap_core::heap::Addr;

    use super::*;

    fn piece(of: &[u8]) -> Piece {
        Piece { at: Addr(of.as_ptr() as u64), len: of.len() }
    }

    #[test]
    fn pieces_that_are_not_mapped_are_told_and_the_others_read() {
        let (one, two) = ([1_u8; 16], [2_u8; 8]);
        let nowhere = Piece { at: Addr(0x1000), len: 8 };
        let pieces = [nowhere, piece(&one), nowhere, nowhere, piece(&two), nowhere];
        let mut into = [0; 56];
        let mut read = [true; 6];
        let mut memory = ProcessMemory::new(Pid(std::process::id()));
        memory.read(&pieces, &mut into, &mut read).unwrap();
        assert_eq!(read, [false, true, false, false, true, false]);
        assert_eq!((&into[8..24], &into[40..48]), (one.as_slice(), two.as_slice()));
    }

    #[test]
    fn more_pieces_than_a_call_takes_are_read() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
        let pieces: Vec<Piece> = bytes.iter().map(|byte| piece(std::slice::from_ref(byte))).collect();
        let (mut into, mut read) = (vec![0; 3000], vec![false; 3000]);
        ProcessMemory::new(Pid(std::process::id())).read(&pieces, &mut into, &mut read).unwrap();
        assert!(read.iter().all(|read| *read));
        assert_eq!(into, bytes);
    }

    #[test]
    fn a_process_that_is_not_there_is_told() {
        let mut memory = ProcessMemory::new(Pid(4_194_305));
        assert_eq!(memory.read(&[piece(&[0])], &mut [0], &mut [false]), Err(Gone::Ended));
    }
}
