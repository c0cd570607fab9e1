//! Membership in roles: where a rule of `auth_hba_file` asks for it, a server is asked, before the client is.

use std::sync::Arc;

use auth::{Membership, Roles, Secret};
use io::Driver;
use pool::PoolId;

use crate::client::State;
use crate::inquiry::{Answer, Question, Topic};
use crate::worker::Worker;
use crate::world::World;

/// What was found out about a client's roles.
#[derive(Debug)]
pub(crate) enum Standing {
    Known(Membership),
    Unknowable,
}

impl Standing {
    pub(crate) fn seen(this: Option<&Self>) -> Roles<'_> {
        match this {
            None => Roles::NotAskedFor,
            Some(Self::Unknowable) => Roles::Unknowable,
            Some(Self::Known(membership)) => Roles::Known(membership),
        }
    }
}

/// Who is asked.
enum Asked {
    Pool(PoolId),
    /// There is no such database: nobody gets in, and that must not be seen yet.
    Nowhere,
    Nobody,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// Find out which roles `slot`'s user belongs to. Whether that is known now; if not, it is being
    /// asked, and [`Worker::roles_found`] follows, or the client has been turned away.
    pub(crate) fn learn_roles(&mut self, slot: u32) -> bool {
        let State::Login(entering) = &self.clients[slot as usize].state else { return false };
        let Some(wish) = entering.wish.as_deref() else { return false };
        let user = wish.user.clone();
        let roles = self.site.rules.roles.at(&wish.facts.database);
        let asked = match self.asker(slot) {
            Ok(Some(pool)) => Asked::Pool(pool),
            Ok(None) => self.asked_instead(slot),
            Err(trouble) => {
                self.tell_trouble(slot, &trouble);
                return false;
            }
        };
        let pool = match asked {
            Asked::Pool(pool) => pool,
            Asked::Nowhere => {
                return self.note_roles(slot, Standing::Known(Membership::none(roles)));
            }
            Asked::Nobody => return self.note_roles(slot, Standing::Unknowable),
        };
        let question = Question { pool, user, topic: Topic::Roles(roles) };
        let recalled = self.commons.memory().answers.recall(&question, self.now);
        if let Some(Answer::Roles(membership)) = recalled {
            return self.note_roles(slot, Standing::Known(membership));
        }
        if let State::Login(entering) = &mut self.clients[slot as usize].state {
            entering.question = Some(question.clone());
        }
        self.inquire(slot, question);
        false
    }

    /// Without auth_user, the servers of the database's forced user are asked; or those of the user
    /// itself, if what stands in auth_file opens them without its help.
    fn asked_instead(&mut self, slot: u32) -> Asked {
        let State::Login(entering) = &self.clients[slot as usize].state else {
            return Asked::Nobody;
        };
        let Some(wish) = entering.wish.as_deref() else { return Asked::Nobody };
        let (asked, user) = (wish.database.clone(), wish.user.clone());
        let own = self.site.userlist.secret(&wish.facts.user);
        let opens = matches!(own, Some(Secret::Plain(_) | Secret::Md5(_)));
        if *asked == *admin::CONSOLE {
            return Asked::Nobody;
        }
        let Some(database) = self.database_of(&asked) else { return Asked::Nowhere };
        if self.standing.marks(&asked).disabled {
            return Asked::Nobody;
        }
        let forced = database.user.as_deref().map(Arc::from);
        match forced.or_else(|| opens.then_some(user)) {
            Some(user) => Asked::Pool(self.room_for(&asked, &user, &database)),
            None => Asked::Nobody,
        }
    }

    /// A server has told.
    pub(crate) fn roles_found(&mut self, slot: u32, membership: Membership) {
        self.note_roles(slot, Standing::Known(membership));
        if let Some(way) = self.choose_way(slot) {
            self.way_chosen(slot, way);
        }
    }

    fn note_roles(&mut self, slot: u32, standing: Standing) -> bool {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return false };
        entering.question = None;
        let Some(wish) = &mut entering.wish else { return false };
        wish.learnt.roles = Some(standing);
        true
    }
}
