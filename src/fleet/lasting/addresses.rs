//! Where a worker can be connected to: the addresses its name stands for, the one in use first.

use super::Lasting;
use crate::fleet::WorkerAddress;
use std::sync::Arc;

impl Lasting {
    /// Where to connect; `None` while its name was never resolved.
    pub(in crate::fleet) fn address(&self) -> Option<WorkerAddress> {
        self.addresses.load().first().cloned()
    }

    /// Replaces the addresses its name stands for; true if the one in use is gone, so that another
    /// process answers from now on. The address in use stays first while it is among them.
    pub(in crate::fleet) fn resolved(&self, mut addresses: Vec<WorkerAddress>) -> bool {
        let used = self.address();
        if let Some(at) =
            used.as_ref().and_then(|used| addresses.iter().position(|known| known == used))
        {
            addresses[..=at].rotate_right(1);
        }
        let moved = used.is_some() && used.as_ref() != addresses.first();
        let first = used.is_none();
        self.addresses.store(Arc::new(addresses));
        self.refresh(self.now());
        if moved || first {
            self.readdressed.notify_one();
        }
        moved
    }

    /// Tries the next address of its name from now on.
    pub(in crate::fleet) fn next_address(&self) {
        let addresses = self.addresses.load();
        if addresses.len() < 2 {
            return;
        }
        let mut addresses = Vec::clone(&addresses);
        addresses.rotate_left(1);
        self.addresses.store(Arc::new(addresses));
    }
}
