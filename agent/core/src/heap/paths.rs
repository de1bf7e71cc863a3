//! Chains of attributes, many at once.

use std::collections::HashMap;

use super::memory::Memory;
use super::reader::{Heap, Refusal};
use super::seen::Ref;

impl<M: Memory> Heap<M> {
    /// The ends of chains of attributes from one object; `None` where an attribute does not exist, or has no object. All
    /// chains go step by step together: the number of calls is that of the longest.
    pub fn paths(&mut self, root: Ref, paths: &[&[&'static str]]) -> Vec<Result<Option<Ref>, Refusal>> {
        let mut at: Vec<Result<Option<Ref>, Refusal>> = vec![Ok(Some(root)); paths.len()];
        let longest = paths.iter().map(|path| path.len()).max().unwrap_or(0);
        for depth in 0..longest {
            let mut places: HashMap<(Ref, &'static str), usize> = HashMap::new();
            let mut wants = Vec::new();
            let mut taken = Vec::new();
            for (number, (path, at)) in paths.iter().zip(&at).enumerate() {
                let (Some(name), Ok(Some(object))) = (path.get(depth), at) else { continue };
                let place = *places.entry((*object, *name)).or_insert_with(|| {
                    wants.push((*object, *name));
                    wants.len() - 1
                });
                taken.push((number, place));
            }
            let found = self.attributes(&wants);
            for (number, place) in taken {
                at[number] = found.get(place).copied().unwrap_or(Err(Refusal::Unreadable));
            }
        }
        at
    }
}
