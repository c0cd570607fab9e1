//! Who somebody is on the console.

use crate::CONSOLE;

/// How far a person's rights go. Each may what the one before it may.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// Not let in. Nothing is allowed, should such a one ever come as far as a command.
    Nobody,
    /// May look.
    Stats,
    /// May do everything.
    Admin,
}

/// How somebody came to be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CameBy {
    /// The name was proved, whatever `auth_type` asks for.
    Login,
    /// `auth_type = any`: nobody proved anything.
    AnyLogin,
    /// Through the unix socket, with the uid this process runs as.
    OwnUid,
}

impl Role {
    /// What `user` is. `admin_users` and `stats_users` are the settings' lists.
    #[must_use]
    pub fn of<'a>(
        user: &str,
        came_by: CameBy,
        admin_users: impl IntoIterator<Item = &'a str>,
        stats_users: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if admin_users.into_iter().any(|admin| admin == user)
            || (came_by == CameBy::OwnUid && user == CONSOLE)
        {
            return Self::Admin;
        }
        if came_by == CameBy::AnyLogin || stats_users.into_iter().any(|stats| stats == user) {
            return Self::Stats;
        }
        Self::Nobody
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_decide_and_the_stronger_one_wins() {
        let role = |user| Role::of(user, CameBy::Login, ["ann", "both"], ["bob", "both"]);
        assert_eq!(role("ann"), Role::Admin);
        assert_eq!(role("both"), Role::Admin);
        assert_eq!(role("bob"), Role::Stats);
        assert_eq!(role("eve"), Role::Nobody);
        assert_eq!(role(""), Role::Nobody);
    }

    #[test]
    fn the_owner_of_the_process_needs_no_list_but_only_by_its_name() {
        let role = |user, came_by| Role::of(user, came_by, [], []);
        assert_eq!(role("pgbouncer", CameBy::OwnUid), Role::Admin);
        assert_eq!(role("pgbouncer", CameBy::Login), Role::Nobody);
        assert_eq!(role("eve", CameBy::OwnUid), Role::Nobody);
    }

    #[test]
    fn where_nobody_proves_anything_everybody_may_look() {
        let role = |user| Role::of(user, CameBy::AnyLogin, ["ann"], ["bob"]);
        assert_eq!(role("eve"), Role::Stats);
        assert_eq!(role("bob"), Role::Stats);
        assert_eq!(role("ann"), Role::Admin);
        assert_eq!(role("pgbouncer"), Role::Stats);
    }
}
