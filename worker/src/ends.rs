//! Both ends of a client's connection, in little space.

use std::borrow::Cow;
use std::net::{SocketAddr, SocketAddrV4};

use io::{Address, Ends};

/// As [`Ends`], which takes five times as much: of a client they are looked at only when it comes or goes, or is shown.
#[derive(Debug)]
pub(crate) enum PackedEnds {
    V4 { peer: SocketAddrV4, local: SocketAddrV4 },
    Other(Box<Ends>),
}

const _: () = assert!(size_of::<PackedEnds>() == 16, "every idle client has one");

impl PackedEnds {
    pub(crate) fn open(&self) -> Cow<'_, Ends> {
        match self {
            Self::V4 { peer, local } => {
                let [peer, local] = [*peer, *local].map(|end| Address::Inet(SocketAddr::V4(end)));
                Cow::Owned(Ends { peer, local, uid: None, pid: None })
            }
            Self::Other(ends) => Cow::Borrowed(ends),
        }
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Self::Other(ends) if ends.peer.is_unix())
    }
}

impl From<Ends> for PackedEnds {
    fn from(ends: Ends) -> Self {
        match ends {
            Ends {
                peer: Address::Inet(SocketAddr::V4(peer)),
                local: Address::Inet(SocketAddr::V4(local)),
                uid: None,
                pid: None,
            } => Self::V4 { peer, local },
            ends => Self::Other(Box::new(ends)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is packed comes out as it was.
    #[test]
    fn nothing_is_lost() {
        let inet = |text: &str| Address::Inet(text.parse().expect("an address"));
        let unix = |path: &str| Address::Unix(path.into());
        let plain = |peer, local| Ends { peer, local, uid: None, pid: None };
        let v4 = plain(inet("10.1.2.3:40000"), inet("127.0.0.1:6432"));
        let all = [
            v4.clone(),
            plain(inet("[fe80::1%7]:40000"), inet("[::1]:6432")),
            plain(inet("10.1.2.3:40000"), inet("[::1]:6432")),
            Ends { uid: Some(0), pid: Some(4711), ..plain(unix(""), unix("/tmp/.s.PGSQL.6432")) },
            Ends { uid: Some(33), ..v4 },
        ];
        for ends in all {
            let packed = PackedEnds::from(ends.clone());
            assert_eq!(packed.open().into_owned(), ends);
            assert_eq!(packed.is_unix(), ends.peer.is_unix());
        }
    }
}
