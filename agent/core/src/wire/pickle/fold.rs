//! What to make of a pickle that ends too early.
//!
//! Fields wait on the stack until their object is made, so that the stack at the cut holds nearly all there is. It is
//! closed from the innermost open value on, each as the opcodes that did not come would have closed it.

use super::Value;
use super::machine::Machine;
use super::store::{Made, Parts, Store, wide};

/// Items that CPython's pickler adds at once (`_BATCHSIZE`): a container that holds other numbers of them is full.
const BATCH: u32 = 1000;

impl Machine<'_> {
    /// Closes everything that is open; the value at the bottom.
    pub(super) fn fold(&mut self) -> Option<Value> {
        let mut open = false;
        while let Some(mark) = self.marks.pop() {
            self.close(mark, open);
            open = true;
        }
        self.call(0, open);
        self.fold_unmarked();
        self.stack.first().copied()
    }

    /// Gives what is above a mark to the container below it; where there is none it was to be a tuple.
    fn close(&mut self, mark: usize, open: bool) {
        self.call(mark, open);
        let fence = self.marks.last().copied().unwrap_or(0);
        let below = mark.checked_sub(1).filter(|at| *at >= fence).and_then(|at| self.stack.get(at)).copied();
        let items = self.stack.get(mark..).unwrap_or_default();
        let chain = below.and_then(|container| self.store.open(container));
        match (chain, below) {
            (Some(chain), Some(Value::Dict(_))) => {
                // A key without its value is of no use.
                let pairs = items.len() - items.len() % 2;
                self.store.extend(chain, items.get(..pairs).unwrap_or_default());
                self.stack.truncate(mark);
            }
            (Some(chain), _) => {
                self.store.extend(chain, items);
                self.stack.truncate(mark);
            }
            (None, _) => {
                let tuple = Value::Tuple(self.store.keep(items));
                self.stack.truncate(mark);
                self.stack.push(tuple);
            }
        }
    }

    /// Makes the call, or sets the state, that was on its way above `from`: `open`, where its last part was just
    /// closed.
    fn call(&mut self, from: usize, open: bool) {
        if let Some([.., built @ Value::Object(object), state]) = self.stack.get(from..)
            && open
            && self.store.objects.get(wide(*object)).is_some_and(|parts| parts.state.is_none())
        {
            self.store.build(*built, *state);
            self.stack.pop();
        }
        // A class that stands alone is about to be called with what follows it.
        let items = self.stack.get(from..).unwrap_or_default();
        let Some(at) = items.iter().position(|value| matches!(value, Value::Global(_))) else { return };
        let (callee, args) = match items.get(at..) {
            Some([callee, args @ Value::Tuple(_)]) => (*callee, *args),
            Some([callee, args @ ..]) if !args.is_empty() => (*callee, Value::Tuple(self.store.keep(args))),
            Some(_) | None => return,
        };
        let object = self.store.object(Parts::new(Made::Called, callee, args));
        self.stack.truncate(from + at);
        self.stack.push(object);
    }

    /// Protocol 0 adds items one by one, with no mark.
    fn fold_unmarked(&mut self) {
        loop {
            let (taken, chain) = match self.stack.as_slice() {
                [.., Value::Dict(chain), key, _] if key.is_text() => (2, *chain),
                [.., Value::List(chain), _] => (1, *chain),
                [.., Value::Object(_), Value::Dict(_)] if self.stack.len() == 2 => return self.call(0, true),
                [..] => return,
            };
            let from = self.stack.len() - taken;
            self.store.extend(chain, self.stack.get(from..).unwrap_or_default());
            self.stack.truncate(from);
        }
    }
}

impl Store {
    /// The container's chain, if it may be the one that items on the stack were for.
    fn open(&self, container: Value) -> Option<u32> {
        let (chain, batch) = match container {
            Value::List(chain) | Value::Set(chain) => (chain, BATCH),
            Value::Dict(chain) => (chain, 2 * BATCH),
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Long(_)
            | Value::Digits(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Escaped(_)
            | Value::Quoted(_)
            | Value::Bytes(_)
            | Value::ByteArray(_)
            | Value::Buffer(_)
            | Value::Tuple(_)
            | Value::FrozenSet(_)
            | Value::Global(_)
            | Value::Extension(_)
            | Value::Object(_) => return None,
        };
        let len = self.chains.get(wide(chain))?.len;
        (len % batch == 0).then_some(chain)
    }
}
