//! A small reader of Python class bodies: annotated attributes and assignments, in order.
//!
//! It knows just enough of the grammar to find its way: logical lines, indentation, strings, brackets. What it
//! does not understand it passes over.

use std::collections::HashMap;

/// A class, as far as its body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Class<'a> {
    /// The base classes' last names (`Struct` of `msgspec.Struct`).
    bases: Vec<&'a str>,
    /// Annotated attributes, in order (`x: int`, `y: int = 0`); class variables left out.
    fields: Vec<&'a str>,
    /// Plain assignments: name and the text of the value.
    assigned: Vec<(&'a str, &'a str)>,
}

/// The classes of a module, by name.
#[derive(Debug, Default)]
pub(super) struct Classes<'a>(HashMap<&'a str, Class<'a>>);

/// Base classes looked through for one class: more is a circle.
const BASES: usize = 32;

impl<'a> Classes<'a> {
    /// Reads every class of a module. Of several of one name (under conditions) the first with a body counts.
    pub(super) fn read(source: &'a str) -> Self {
        let mut reader = Reader::default();
        for line in Lines(source) {
            reader.line(&line);
        }
        Self(reader.classes)
    }

    /// The fields of a class in order, those of its bases first; empty where there is no such class.
    pub(super) fn fields(&self, name: &str) -> Vec<&'a str> {
        let mut fields = Vec::new();
        for class in self.lineage(name).iter().rev() {
            for field in &class.fields {
                // Annotated again in a subclass, a field keeps its place.
                if !fields.contains(field) {
                    fields.push(*field);
                }
            }
        }
        fields
    }

    /// The members of an enum whose values are whole numbers or single bytes.
    pub(super) fn members(&self, name: &str) -> Vec<(&'a str, u32)> {
        let mut last = 0;
        let assigned = self.0.get(name).map(|class| class.assigned.as_slice()).unwrap_or_default();
        let number = |(member, value): &(&'a str, &'a str)| {
            last = enum_value(value, last)?;
            Some((*member, last))
        };
        assigned.iter().filter(|(member, _)| !member.starts_with('_')).filter_map(number).collect()
    }

    /// A class and its bases, the class first.
    fn lineage(&self, name: &str) -> Vec<&Class<'a>> {
        let mut found = Vec::new();
        let mut open = vec![name];
        while let Some(class) = open.pop().and_then(|name| self.0.get(name)) {
            if found.len() >= BASES {
                break;
            }
            found.push(class);
            open.extend(class.bases.iter().filter(|base| self.0.contains_key(*base)));
        }
        found
    }
}

/// The number of an enum member: `3`, `0x3`, `b"\x03"`, `enum.auto()`.
fn enum_value(text: &str, last: u32) -> Option<u32> {
    if text.ends_with("auto()") {
        return Some(last.saturating_add(1));
    }
    if let Some(bytes) = text.strip_prefix('b') {
        let inner = bytes.trim_matches(['"', '\'']);
        return match inner.strip_prefix("\\x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => inner.bytes().next().filter(|_| inner.len() == 1).map(u32::from),
        };
    }
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A logical line: what the grammar sees as one, whatever the line breaks inside brackets and strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    indent: usize,
    /// The statement, without a comment at its end. Line breaks, comments and strings inside are left.
    text: &'a str,
}

/// The logical lines of a source.
struct Lines<'a>(&'a str);

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        while !self.0.is_empty() {
            let indent: usize = self.0.bytes().map_while(indent_of).sum();
            let start = self.0.bytes().take_while(|byte| indent_of(*byte).is_some()).count();
            let statement = self.0.get(start..)?;
            let (code, whole) = logical(statement);
            self.0 = statement.get(whole..)?;
            let text = statement.get(..code)?.trim_end();
            if !text.is_empty() {
                return Some(Line { indent, text });
            }
        }
        None
    }
}

/// How far a byte of white space indents.
fn indent_of(byte: u8) -> Option<usize> {
    match byte {
        b' ' => Some(1),
        b'\t' => Some(8),
        b'\x0c' => Some(0),
        _ => None,
    }
}

/// Lengths of the logical line in front: without its comment, and with it and its line end.
fn logical(text: &str) -> (usize, usize) {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    let mut code = None;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' if depth == 0 => return (code.unwrap_or(at), at + 1),
            b'#' => {
                if depth == 0 {
                    code.get_or_insert(at);
                }
                at += bytes[at..].iter().take_while(|byte| **byte != b'\n').count();
                continue;
            }
            b'"' | b'\'' => {
                at += string(&bytes[at..]);
                continue;
            }
            b'\\' => at += 1,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    (code.unwrap_or(bytes.len()), bytes.len())
}

/// Length of the string literal in front, quotes included; an open one ends with its line, or the source.
fn string(bytes: &[u8]) -> usize {
    let Some(quote) = bytes.first() else { return 0 };
    let triple = bytes.get(..3) == Some(&[*quote; 3]);
    let close = if triple { 3 } else { 1 };
    let mut at = close;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'\n' if !triple => return at,
            byte if byte == quote && (!triple || bytes.get(at..at + 3) == Some(&[*quote; 3])) => {
                return at + close;
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// A block that is open, by the indentation of the statement that opened it.
struct Block<'a> {
    indent: usize,
    kind: Kind<'a>,
}

/// What a block is.
enum Kind<'a> {
    Class(&'a str),
    /// A function, or a class that is not the first of its name: nothing in it counts.
    Ignored,
}

#[derive(Default)]
struct Reader<'a> {
    classes: HashMap<&'a str, Class<'a>>,
    blocks: Vec<Block<'a>>,
}

impl<'a> Reader<'a> {
    /// Takes the next logical line. Conditions and the like open no block here: what stands in them belongs to
    /// the class around them.
    fn line(&mut self, line: &Line<'a>) {
        while self.blocks.last().is_some_and(|block| block.indent >= line.indent) {
            self.blocks.pop();
        }
        let (word, rest) = identifier(line.text);
        match word {
            "class" => self.class(line.indent, rest.trim_start()),
            "def" | "async" => self.blocks.push(Block { indent: line.indent, kind: Kind::Ignored }),
            "" => {}
            _ if KEYWORDS.contains(&word) => {}
            _ => self.attribute(word, rest.trim_start()),
        }
    }

    fn class(&mut self, indent: usize, text: &'a str) {
        let (name, rest) = identifier(text);
        let known = self.classes.get(name).is_some_and(|class| *class != Class::default());
        let kind = if known || name.is_empty() { Kind::Ignored } else { Kind::Class(name) };
        if !known {
            let class = Class { bases: bases(rest), ..Class::default() };
            self.classes.insert(name, class);
        }
        self.blocks.push(Block { indent, kind });
    }

    fn attribute(&mut self, name: &'a str, rest: &'a str) {
        let Some(Block { kind: Kind::Class(class), .. }) = self.blocks.last() else { return };
        let Some(class) = self.classes.get_mut(class) else { return };
        match rest.strip_prefix(':') {
            Some(annotation) if !annotation.contains("ClassVar") => class.fields.push(name),
            Some(_) => {}
            None => {
                let value = rest.strip_prefix('=').filter(|value| !value.starts_with('='));
                class.assigned.extend(value.map(|value| (name, value.trim())));
            }
        }
    }
}

/// Words that may be followed by a colon, or by nothing of interest.
const KEYWORDS: [&str; 12] =
    ["if", "elif", "else", "try", "except", "finally", "with", "for", "while", "return", "pass", "lambda"];

/// The identifier in front and what follows it.
fn identifier(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

/// The base classes in `(a.B, C[int], key=value):`.
fn bases(text: &str) -> Vec<&str> {
    let inner = text.trim_start().strip_prefix('(').unwrap_or_default();
    let inner = inner.split_once(')').map_or(inner, |(inner, _)| inner);
    let base = |part: &str| !part.contains('=') && !part.trim_start().starts_with('#');
    inner
        .split(',')
        .filter(|part| base(part))
        .map(|part| part.split('[').next().unwrap_or(part).trim())
        .filter_map(|path| path.rsplit('.').next())
        .filter(|name| !name.is_empty())
        .collect()
}
