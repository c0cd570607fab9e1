//! The settings whose value is one of a few words.

use std::fmt;

/// A value that is one of a few words. Case does not matter when reading.
pub(crate) trait Word: Copy + Eq + 'static {
    const ALL: &'static [(Self, &'static str)];

    fn read(text: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, word)| word.eq_ignore_ascii_case(text));
        found.map(|(value, _)| *value)
    }

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(value, _)| *value == self);
        found.map_or("", |(_, word)| word)
    }

    /// `one of a, b, c`, for error messages and the documentation.
    fn expects() -> String {
        let words: Vec<&str> = Self::ALL.iter().map(|(_, word)| *word).collect();
        format!("one of {}", words.join(", "))
    }
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl Word for $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$variant, $word),)*];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// When a server goes back to its pool.
    PoolMode {
        /// When the client leaves.
        Session = "session",
        /// After each transaction.
        Transaction = "transaction",
        /// After each statement; transaction blocks are refused.
        Statement = "statement",
    }
}

words! {
    /// How clients prove who they are.
    AuthType {
        /// Nothing is asked and the user name is ignored: every database needs a forced user.
        Any = "any",
        /// The user must be known; nothing is asked.
        Trust = "trust",
        Plain = "plain",
        Md5 = "md5",
        ScramSha256 = "scram-sha-256",
        Cert = "cert",
        Hba = "hba",
        Pam = "pam",
        Ldap = "ldap",
    }
}

words! {
    /// How much TLS is wanted, in libpq's words.
    SslMode {
        Disable = "disable",
        Allow = "allow",
        Prefer = "prefer",
        Require = "require",
        VerifyCa = "verify-ca",
        VerifyFull = "verify-full",
    }
}

words! {
    /// Which face of the kernel is used.
    IoDriver {
        /// `io_uring` where the kernel has it and allows it, else readiness.
        Auto = "auto",
        IoUring = "io_uring",
        Readiness = "readiness",
    }
}
