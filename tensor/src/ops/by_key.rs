//! Grouping of items by a small integer key, so that kernels can sum the items of a key without atomics.

/// Returns `starts` with `count + 1` entries, and `order`: the items of key k, ascending, are
/// `order[starts[k]..starts[k + 1]]`.
/// Panics if a key is not below `count`. Callers check this first, for a better message.
pub(crate) fn by_key(
    keys: impl Iterator<Item = u32> + Clone,
    count: usize,
) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; count + 1];
    for key in keys.clone() {
        starts[key as usize + 1] += 1;
    }
    for key in 0..count {
        starts[key + 1] += starts[key];
    }
    let mut next = starts.clone();
    let mut order = vec![0; starts[count] as usize];
    for (item, key) in keys.enumerate() {
        order[next[key as usize] as usize] = item as u32;
        next[key as usize] += 1;
    }
    (starts, order)
}

#[cfg(test)]
mod tests {
    use super::by_key;

    #[test]
    fn items_stay_in_order_within_a_key() {
        let (starts, order) = by_key([2, 0, 2, 2, 0].into_iter(), 4);
        assert_eq!(starts, [0, 2, 2, 5, 5]);
        assert_eq!(order, [1, 4, 0, 2, 3]);
    }
}
