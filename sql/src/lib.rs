//! What a statement's text may do to a session, read with PostgreSQL's own grammar.
//!
//! Sans-IO: a text in, a [`Reading`] out. A reading says of each statement which kinds of session state it may make, end
//! or depend on ([`States`]), what it does by name ([`Act`]), and how much can be known from the text alone ([`Touch`]).
//! It errs on one side only: what is not understood is [`Touch::Unknown`], and never taken for harmless.
//!
//! What no text can show: whether a table has triggers, rules, policies, defaults, or columns of a domain with checks;
//! whether a view calls functions; and whether a name that PostgreSQL has built in has been overloaded by somebody with
//! a better match for these arguments, or a cast or a domain's check been made. Such statements are [`Touch::Ordinary`] or
//! say so in [`Statement::overloadable`]: whoever must be certain asks the server.
//!
//! Names are taken to mean what they mean while `pg_catalog` is searched first, which it is unless the search_path names
//! it further back: see [`catalog_comes_first`].
//!
//! The grammar is that of PostgreSQL 18 (libpg_query), which reads the texts of all earlier ones but for a handful of
//! keywords. It is C, and recursive; [`Reading::of`] sees to it that neither a long text nor a deep one can hurt.

mod act;
mod catalog;
mod code;
mod digest;
mod mentions;
mod overloadable;
mod parameters;
mod reading;
mod result;
mod skim;
mod states;
mod told;
mod utility;

pub use act::{
    Act, CopyWay, Discarded, Item, Mode, Object, Setting, Temporary, Transaction, Value,
};
pub use catalog::{Builtin, builtin, catalog_comes_first, encoding_is_plain};
pub use code::{Code, Unseen, may_set};
pub use digest::Digest;
pub use overloadable::Overloadable;
pub use parameters::parameters;
pub use reading::{Reading, Signal, Statement, TEXT_BYTES_MAX, Touch, Unread};
pub use result::returns_nothing;
pub use skim::{Skim, Skimmed, Strings};
pub use states::States;
pub use told::Told;
