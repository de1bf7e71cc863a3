//! Whether a layout fits an interpreter: known objects are read and must be what they are.

use super::kind::Kind;
use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::Ref;
use super::value::Value;

/// Builtin types, which are called what they are called.
const TYPES: [&str; 10] = ["int", "float", "str", "bytes", "list", "tuple", "dict", "set", "bool", "type"];
/// Pieces one check may read.
const PIECES: usize = 1 << 16;

/// What was not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The first interpreter does not point back to the runtime.
    #[error("the interpreter does not lead back to its runtime")]
    Runtime,
    /// A thread does not point back to its interpreter.
    #[error("a thread does not lead back to its interpreter")]
    Thread,
    /// A known object is not what it is.
    #[error("{0} is not what it must be")]
    Object(String),
    /// Something could not be read.
    #[error("reading {0} met {1}")]
    Refused(&'static str, Refusal),
}

impl<M: Memory> Heap<M> {
    /// Reads known objects of the interpreter: its ring of pointers, builtin types, modules, numbers, texts, a tuple, and
    /// an instance of a Python class.
    ///
    /// # Errors
    /// Says what was not as it must be: then the layout is not the interpreter's.
    pub fn check(&mut self) -> Result<(), Misfit> {
        self.begin(PIECES);
        self.check_ring()?;
        self.check_types()?;
        self.check_values()?;
        self.check_instance()
    }

    fn check_ring(&mut self) -> Result<(), Misfit> {
        let refused = |reason| Misfit::Refused("the ring of interpreters and threads", reason);
        let interpreters = self.interpreters().map_err(refused)?;
        for interpreter in &interpreters {
            if self.field(*interpreter, Field::InterpRuntime).map_err(refused)? != self.runtime {
                return Err(Misfit::Runtime);
            }
            for thread in self.threads(*interpreter).map_err(refused)? {
                if self.field(thread, Field::ThreadInterp).map_err(refused)? != *interpreter {
                    return Err(Misfit::Thread);
                }
            }
        }
        if interpreters.is_empty() { Err(Misfit::Runtime) } else { Ok(()) }
    }

    fn check_types(&mut self) -> Result<(), Misfit> {
        for name in TYPES {
            let object = self.known("builtins", name)?;
            let of_type =
                self.type_at(object.addr).map_err(|reason| Misfit::Refused("builtin types", reason))?;
            if of_type.name != name {
                return Err(Misfit::Object(format!("the type {name}")));
            }
        }
        let meta = self.known("builtins", "type")?.addr;
        let of_meta =
            self.field(meta, Field::ObType).map_err(|reason| Misfit::Refused("type's type", reason))?;
        if of_meta == meta { Ok(()) } else { Err(Misfit::Object("type's type".to_owned())) }
    }

    fn check_values(&mut self) -> Result<(), Misfit> {
        let max = i128::from(i64::MAX);
        self.expect("sys", "maxsize", |value| *value == Value::Int(max))?;
        self.expect("sys", "maxunicode", |value| *value == Value::Int(0x10_ffff))?;
        self.expect("sys", "byteorder", |value| value.text() == Some("little"))?;
        self.expect("builtins", "True", |value| *value == Value::Bool(true))?;
        self.expect("builtins", "None", |value| *value == Value::None)?;
        let none = self.known("builtins", "None")?.addr;
        let of_none = self.type_of(none).map_err(|reason| Misfit::Refused("None", reason))?;
        self.none = Some((none, of_none));
        self.expect("sys", "float_info", |value| begins(value, &[Value::Float(f64::MAX)]))?;
        let version = self.layout.version;
        let version = [Value::Int(version.major.into()), Value::Int(version.minor.into())];
        self.expect("sys", "version_info", |value| begins(value, &version))?;
        let path = self.known("sys", "path")?.addr;
        let kind = self.type_of(path).map_err(|reason| Misfit::Refused("sys.path", reason))?.kind;
        if kind == Kind::List { Ok(()) } else { Err(Misfit::Object("sys.path".to_owned())) }
    }

    /// `sys.__spec__` is an instance of a Python class.
    fn check_instance(&mut self) -> Result<(), Misfit> {
        let refused = |reason| Misfit::Refused("sys.__spec__", reason);
        let spec = self.known("sys", "__spec__")?;
        let name = self.attribute(spec, "name").map_err(refused)?;
        let name = name.map(|name| self.value(name, 0)).transpose().map_err(refused)?;
        if name.as_ref().and_then(Value::text) == Some("sys") {
            Ok(())
        } else {
            Err(Misfit::Object("sys.__spec__.name".to_owned()))
        }
    }

    /// An object in a module's dict.
    fn known(&mut self, module: &'static str, name: &'static str) -> Result<Ref, Misfit> {
        let refused = |reason| Misfit::Refused(name, reason);
        let missing = || Misfit::Object(format!("{module}.{name}"));
        let module = self.module(module).map_err(refused)?.ok_or_else(missing)?;
        self.attribute(module, name)
            .map_err(refused)?
            .filter(|found| found.addr != Addr(0))
            .ok_or_else(missing)
    }

    fn expect(
        &mut self,
        module: &'static str,
        name: &'static str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<(), Misfit> {
        let object = self.known(module, name)?;
        let value = self.value(object, 1).map_err(|reason| Misfit::Refused(name, reason))?;
        if is(&value) { Ok(()) } else { Err(Misfit::Object(format!("{module}.{name}"))) }
    }
}

fn begins(value: &Value, expected: &[Value]) -> bool {
    matches!(value, Value::Items(items) if items.starts_with(expected))
}
