//! Failures to connect that are this machine's, and say nothing about who was to be connected to.

use nix::errno::Errno;
use std::error::Error;
use std::io;

/// Has the process or the machine run out of descriptors or memory? That no port is left is said of one
/// destination only: others may be reached.
pub fn is_ours(error: &(dyn Error + 'static)) -> bool {
    let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    let own = number.is_some_and(|number| {
        matches!(
            Errno::from_raw(number),
            Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM
        )
    });
    own || error.source().is_some_and(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_peers_and_a_lack_of_descriptors_is_ours() {
        let made = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        assert!(is_ours(&made(Errno::EMFILE)));
        assert!(!is_ours(&made(Errno::EADDRNOTAVAIL)));
        assert!(!is_ours(&made(Errno::ECONNREFUSED)));
        assert!(!is_ours(&made(Errno::ETIMEDOUT)));
        assert!(!is_ours(&io::Error::other("text")));
    }
}
