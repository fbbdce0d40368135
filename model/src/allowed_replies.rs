//! The replies to which sampling can be restricted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Replies as token ids. After each of their beginnings only the tokens that continue one of them can be sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct AllowedReplies(BTreeMap<Vec<u32>, Arc<[u32]>>);

impl AllowedReplies {
    /// Allows these replies. A reply that is the beginning of another ends with one of the stop ids; the others end by
    /// themselves.
    pub fn new(replies: &[Vec<u32>], stop: &[u32]) -> AllowedReplies {
        let mut next: BTreeMap<&[u32], BTreeSet<u32>> = BTreeMap::new();
        for reply in replies {
            for (length, id) in reply.iter().enumerate() {
                next.entry(&reply[..length]).or_default().insert(*id);
            }
        }
        for reply in replies {
            if let Some(longer) = next.get_mut(&reply[..]) {
                longer.extend(stop);
            }
        }
        let next = next.into_iter();
        let next = next.map(|(begun, ids)| (begun.to_vec(), ids.into_iter().collect()));
        AllowedReplies(next.collect())
    }

    /// Returns the ids that can follow the beginning of a reply, ascending; none if the reply is complete.
    pub fn after(&self, begun: &[u32]) -> Arc<[u32]> {
        self.0.get(begun).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_nothing_follows_or_with_a_stop_id() {
        let allowed = AllowedReplies::new(&[vec![5], vec![7, 1], vec![7], vec![7, 3, 1]], &[0, 9]);
        let after = |begun: &[u32]| allowed.after(begun).to_vec();
        assert_eq!(after(&[]), [5, 7]);
        assert_eq!(after(&[5]), [0u32; 0]);
        assert_eq!(after(&[7]), [0, 1, 3, 9]);
        assert_eq!(after(&[7, 9]), [0u32; 0]);
        assert_eq!(after(&[7, 1]), [0u32; 0]);
        assert_eq!(after(&[7, 3]), [1]);
    }
}
