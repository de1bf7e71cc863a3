//! Where in a file a dynamic symbol's code lies: what a probe on it is attached by.

use std::path::PathBuf;

use memchr::memmem;
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, STT_FUNC};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadRef};

/// Most bytes of a table of symbols or names that are read: ten times the largest seen (libtorch, 5 MB of names).
const TABLE_LIMIT: u64 = 64 * 1024 * 1024;

/// Why a symbol was not found.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// The file is no 64-bit ELF file, or a broken one.
    #[error("{}: not a sound ELF library: {error}", file.display())]
    NoElf {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: object::Error,
    },
    /// It has no such function.
    #[error("{}: no function whose symbol begins with {symbol}", file.display())]
    Absent {
        /// The file.
        file: PathBuf,
        /// How the symbol begins.
        symbol: &'static str,
    },
}

/// The file offset of the first function among the dynamic symbols whose name begins so; `None` when there is none.
///
/// # Errors
/// When this is no sound 64-bit ELF file.
pub fn function<'data, R: ReadRef<'data>>(data: R, prefix: &[u8]) -> Result<Option<u64>, object::Error> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some(address) = address(endian, data, &sections, prefix)? else { return Ok(None) };
    let segments = header.program_headers(endian, data)?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let mut offsets = loaded.filter_map(|segment| {
        let inside = address.checked_sub(segment.p_vaddr(endian))?;
        (inside < segment.p_filesz(endian)).then(|| segment.p_offset(endian).checked_add(inside))?
    });
    Ok(offsets.next())
}

/// The address of the function, by the table of dynamic symbols. The names are searched as one text, not symbol by symbol:
/// a library has a hundred thousand.
fn address<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    sections: &SectionTable<'data, FileHeader64<Endianness>, R>,
    prefix: &[u8],
) -> Result<Option<u64>, object::Error> {
    let table = sections.iter().find(|section| section.sh_type(endian) == SHT_DYNSYM);
    let Some(table) = table.filter(|table| table.sh_size(endian) <= TABLE_LIMIT) else { return Ok(None) };
    let names = sections.section(table.link(endian))?;
    if names.sh_size(endian) > TABLE_LIMIT {
        return Ok(None);
    }
    let text = names.data(endian, data)?;
    let begins = |at: usize| at.checked_sub(1).and_then(|before| text.get(before)) == Some(&0);
    let wanted: Vec<u32> = memmem::find_iter(text, prefix)
        .filter(|at| begins(*at))
        .filter_map(|at| u32::try_from(at).ok())
        .collect();
    let symbols = table.data_as_array::<object::elf::Sym64<Endianness>, R>(endian, data)?;
    let function = symbols.iter().find(|symbol| {
        symbol.st_type() == STT_FUNC
            && symbol.st_value(endian) != 0
            && wanted.contains(&symbol.st_name(endian))
    });
    Ok(function.map(|symbol| symbol.st_value(endian)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This very program exports nothing; the C library it runs with does.
    fn c_library() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| line.split_whitespace().last().filter(|it| it.contains("libc.so")));
        std::fs::read(path.unwrap()).unwrap()
    }

    #[test]
    fn a_function_is_found_at_the_place_it_is_mapped_from() {
        let bytes = c_library();
        let offset = function(bytes.as_slice(), b"getppid\0").unwrap().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        // START-END PERMISSIONS OFFSET ...
        let mapped = maps.lines().filter(|line| line.contains("libc.so")).find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let (start, end, from) = (number(start)?, number(end)?, number(words.nth(1)?)?);
            (from <= offset && offset - from < end - start).then(|| start + offset - from)
        });
        let address = libc::getppid as *const () as u64;
        assert_eq!(mapped, Some(address));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let bytes = c_library();
        assert_eq!(function(bytes.as_slice(), b"_ZN2at4_ops9embedding4call").unwrap(), None);
        // In the middle of another name.
        assert_eq!(function(bytes.as_slice(), b"etppid\0").unwrap(), None);
    }

    #[test]
    fn a_file_that_is_none_or_is_cut_is_refused_or_has_nothing() {
        assert!(function(b"#!/bin/sh\n".as_slice(), b"x").is_err());
        let bytes = c_library();
        for len in [0, 3, 16, 63, 64, 200, bytes.len() / 2, bytes.len() - 1] {
            let found = function(&bytes[..len], b"getppid\0");
            assert!(found.is_err() || found.is_ok_and(|found| found.is_none()), "{len} bytes");
        }
    }
}
