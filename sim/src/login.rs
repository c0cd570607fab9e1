//! How those who dial in prove who they are.

use auth::{Answer, Credentials, ServerAuth};
use wire::{tag, write};

use crate::dice::Dice;
use crate::secrets;

/// Answer one question of the login.
pub(crate) fn answer(
    auth: &mut Option<Box<ServerAuth>>,
    user: &str,
    wrongly: bool,
    dice: &mut Dice,
    question: &[u8],
    out: &mut Vec<u8>,
) {
    let password = if wrongly { "wrong" } else { secrets::PASSWORD };
    let auth = auth.get_or_insert_with(|| {
        let mut nonce = auth::Nonce::default();
        dice.fill(&mut nonce);
        let password = Credentials::Plain(auth::Password::new(password.as_bytes()));
        Box::new(ServerAuth::new(user.as_bytes(), password, auth::Channel::Open, &nonce))
    });
    let mut answer = auth.asked(question);
    if let Answer::Derive(job) = answer {
        answer = auth.derived(&secrets::derive(job));
    }
    match answer {
        Answer::Send(body) => write::message(out, tag::client::PASSWORD, |out| {
            out.extend_from_slice(&body);
        }),
        Answer::Wait | Answer::Done => {}
        Answer::Failed(fault) => panic!("{user} cannot log in: {fault}"),
        Answer::Derive(_) => panic!("it was derived"),
    }
}
