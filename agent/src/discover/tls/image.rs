//! What an ELF file says of some functions: which it defines and where, which it takes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, ReadRef};

use super::code::{CodeError, Machine, entry, returns};

/// Bytes of code read at once.
const WINDOW: u64 = 512;

/// What an ELF file says of the functions that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Names of the libraries it needs.
    pub needs: BTreeSet<String>,
    /// Functions it takes from other files.
    pub takes: BTreeSet<&'static str>,
    /// Functions it defines.
    pub defines: BTreeMap<&'static str, Site>,
}

/// Where in a file a function is to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its first instruction that does something.
    pub entry: u64,
    /// Its `ret` instructions, or why they cannot be told.
    pub returns: Result<Vec<u64>, CodeError>,
}

type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

impl Image {
    /// Reads a file. It is not read whole: programs are large.
    ///
    /// # Errors
    /// When it cannot be read, or is no 64-bit ELF file of a known machine.
    pub fn read(path: &Path, names: &[&'static str]) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let cache = ReadCache::new(file);
        let elf = Elf::parse(&cache).with_context(|| format!("{} is no 64-bit ELF file", path.display()))?;
        let machine = match elf.elf_header().e_machine(elf.endian()) {
            EM_X86_64 => Machine::X86_64,
            EM_AARCH64 => Machine::Aarch64,
            other => bail!("{} is for a machine that is not known (ELF number {other})", path.display()),
        };
        let code = Code::of(&elf, &cache);
        let mut image = Self { needs: needs(&elf).unwrap_or_default(), ..Self::default() };
        // What is exported; then what else has a name, where names were left in.
        for symbol in elf.dynamic_symbols().chain(elf.symbols()) {
            let Some(name) = symbol.name().ok().and_then(|name| names.iter().find(|known| **known == name))
            else {
                continue;
            };
            if symbol.is_undefined() {
                image.takes.insert(*name);
            } else if let Some(site) = code.site(machine, symbol.address(), symbol.size()) {
                image.defines.entry(*name).or_insert(site);
            }
        }
        Ok(image)
    }
}

fn needs(elf: &Elf<'_>) -> Option<BTreeSet<String>> {
    let table = elf.elf_section_table().dynamic_table(elf.endian(), elf.data()).ok()?;
    let names = table.iter().filter(|entry| entry.tag == DT_NEEDED);
    Some(
        names
            .filter_map(|entry| Some(String::from_utf8_lossy(table.string(entry).ok()?).into_owned()))
            .collect(),
    )
}

/// The executable parts of a file.
struct Code<'a> {
    file: &'a ReadCache<File>,
    /// Address, place in the file, length.
    parts: Vec<(u64, u64, u64)>,
}

impl<'a> Code<'a> {
    fn of(elf: &Elf<'a>, file: &'a ReadCache<File>) -> Self {
        let endian = elf.endian();
        let parts = elf
            .elf_program_headers()
            .iter()
            .filter(|part| part.p_type(endian) == PT_LOAD && part.p_flags(endian) & PF_X != 0)
            .map(|part| (part.p_vaddr(endian), part.p_offset(endian), part.p_filesz(endian)))
            .collect();
        Self { file, parts }
    }

    /// The bytes from an address on, as many as are read at once.
    fn at(&self, address: u64) -> Option<&'a [u8]> {
        let (place, left) = self.place(address)?;
        self.file.read_bytes_at(place, left.min(WINDOW)).ok()
    }

    /// Where in the file an address lies, and how much follows.
    fn place(&self, address: u64) -> Option<(u64, u64)> {
        self.parts.iter().find_map(|&(start, offset, len)| {
            let inside = address.checked_sub(start).filter(|inside| *inside < len)?;
            Some((offset.checked_add(inside)?, len - inside))
        })
    }

    /// `None` for an address at which no code is.
    fn site(&self, machine: Machine, address: u64, size: u64) -> Option<Site> {
        let code = |at| self.at(at);
        let offset = |at: u64| self.place(at).map(|(place, _)| place);
        let all = |places: Vec<u64>| {
            places.into_iter().map(|at| offset(at).ok_or(CodeError::Unreadable(at))).collect()
        };
        Some(Site {
            entry: offset(entry(machine, address, &code))?,
            returns: returns(machine, address, size, &code).and_then(all),
        })
    }
}
