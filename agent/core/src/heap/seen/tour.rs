//! In which order pieces are read again.
//!
//! A reference may be bound elsewhere and back while its object's place is another's. So each piece is read between two
//! looks at the piece that led to it, few pieces apart, and all that a piece led to between two looks at it and at all
//! that led to it.

/// Pieces read between two looks at what led to them.
const NEAR: usize = 2;
/// A long piece is looked at again after as many more pieces: so many bytes cost as much as a piece.
const BYTES: usize = 64;

/// Pieces behind a piece, and behind those, from which on it stands between two looks at what led to it on its own, too.
const MANY: usize = 8;

/// A piece whose children are being read.
struct Open {
    number: usize,
    /// Which of its children is next.
    next: usize,
}

/// The pieces, each behind the piece that led to it and followed by it. `parents`: by number, each smaller than its
/// child's.
pub(super) fn order(parents: &[Option<usize>], lens: &[usize]) -> Vec<usize> {
    let children = Children::of(parents);
    let mut order = Vec::with_capacity(3 * parents.len());
    let mut open: Vec<Open> = Vec::new();
    for root in (0..parents.len()).filter(|number| parents[*number].is_none()) {
        order.push(root);
        enter(root, &children, lens, &mut open, &mut order);
        while let Some(Open { number, next }) = open.last_mut() {
            let child = children.of_piece(*number).get(*next).copied();
            *next += 1;
            let number = *number;
            match child {
                Some(child) if children.is_leaf(child) => {}
                Some(child) => {
                    order.push(child);
                    if children.below[child] > MANY {
                        order.extend([number, child]);
                    }
                    enter(child, &children, lens, &mut open, &mut order);
                }
                None => {
                    open.pop();
                    order.extend(open.last().map(|parent| parent.number));
                }
            }
        }
    }
    order
}

/// Reads what a piece led to that led no further; the others are next.
fn enter(number: usize, children: &Children, lens: &[usize], open: &mut Vec<Open>, order: &mut Vec<usize>) {
    let leaves: Vec<usize> =
        children.of_piece(number).iter().copied().filter(|child| children.is_leaf(*child)).collect();
    for few in leaves.chunks(NEAR + lens[number] / BYTES) {
        order.extend_from_slice(few);
        order.push(number);
    }
    open.push(Open { number, next: 0 });
}

/// Which pieces each piece led to.
struct Children {
    /// Where those of each piece begin.
    starts: Vec<usize>,
    children: Vec<usize>,
    /// How many pieces each led to, those that they led to and so on.
    below: Vec<usize>,
}

impl Children {
    fn of(parents: &[Option<usize>]) -> Self {
        let mut starts = vec![0; parents.len() + 1];
        for parent in parents.iter().flatten() {
            starts[parent + 1] += 1;
        }
        for number in 1..starts.len() {
            starts[number] += starts[number - 1];
        }
        let mut free = starts.clone();
        let mut children = vec![0; starts.last().copied().unwrap_or(0)];
        for (number, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[free[*parent]] = number;
                free[*parent] += 1;
            }
        }
        let mut below = vec![0; parents.len()];
        for (number, parent) in parents.iter().enumerate().rev() {
            if let Some(parent) = parent {
                below[*parent] += 1 + below[number];
            }
        }
        Self { starts, children, below }
    }

    fn is_leaf(&self, number: usize) -> bool {
        self.below[number] == 0
    }

    fn of_piece(&self, number: usize) -> &[usize] {
        self.children.get(self.starts[number]..self.starts[number + 1]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_piece_is_read_between_two_looks_at_what_led_to_it() {
        // 0 led to 1 and 4, 1 to 2 and 3; 5 stands alone.
        let parents = [None, Some(0), Some(1), Some(1), Some(0), None];
        assert_eq!(order(&parents, &[8; 6]), [0, 4, 0, 1, 2, 3, 1, 0, 5]);
        // 0 led to 1, 1 to many: 0 is looked at at once, too.
        let parents: Vec<Option<usize>> = [None, Some(0)].into_iter().chain([Some(1); 9]).collect();
        let order = order(&parents, &[8; 11]);
        assert_eq!((&order[..6], order.last()), (&[0, 1, 0, 1, 2, 3][..], Some(&0)));
    }

    #[test]
    fn a_piece_that_led_to_many_is_looked_at_again_between_them() {
        let parents: Vec<Option<usize>> = std::iter::once(None).chain((1..6).map(|_| Some(0))).collect();
        assert_eq!(order(&parents, &[8; 6]), [0, 1, 2, 0, 3, 4, 0, 5, 0]);
        assert_eq!(order(&parents, &[130; 6]), [0, 1, 2, 3, 4, 0, 5, 0], "a long one less often");
    }

    proptest! {
        #[test]
        fn every_piece_follows_and_is_followed_by_what_led_to_it(
            picks in proptest::collection::vec(any::<(u16, bool)>(), 0..200),
            len in 8_usize..2000,
        ) {
            let parents: Vec<Option<usize>> = picks
                .iter()
                .enumerate()
                .map(|(number, (pick, root))| {
                    (number > 0 && !root).then(|| usize::from(*pick) % number.max(1))
                })
                .collect();
            let order = order(&parents, &vec![len; parents.len()]);
            for (number, parent) in parents.iter().enumerate() {
                let first = order.iter().position(|read| *read == number);
                let last = order.iter().rposition(|read| *read == number);
                let (Some(first), Some(last)) = (first, last) else {
                    return Err(TestCaseError::fail(format!("{number} is not read")));
                };
                let Some(parent) = parent else { continue };
                prop_assert!(order[..first].contains(parent) && order[last..].contains(parent));
            }
            prop_assert!(order.len() <= 5 * parents.len());
        }
    }
}
