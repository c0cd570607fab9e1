//! libpam, by the five functions that are needed of it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use libloading::Library;

/// A session with the library.
#[repr(C)]
struct Handle {
    opaque: [u8; 0],
}

/// `struct pam_message`
#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

/// `struct pam_response`
#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

/// `struct pam_conv`
#[repr(C)]
struct Conversation {
    talk: Talk,
    data: *mut c_void,
}

type Talk =
    unsafe extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int;
type Start = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const Conversation,
    *mut *mut Handle,
) -> c_int;
type SetItem = unsafe extern "C" fn(*mut Handle, c_int, *const c_void) -> c_int;
type Step = unsafe extern "C" fn(*mut Handle, c_int) -> c_int;
type Words = unsafe extern "C" fn(*mut Handle, c_int) -> *const c_char;

// From Linux-PAM's `_pam_types.h`.
const SUCCESS: c_int = 0;
const BUF_ERR: c_int = 5;
const CONV_ERR: c_int = 19;
const PROMPT_ECHO_OFF: c_int = 1;
const PROMPT_ECHO_ON: c_int = 2;
const RHOST: c_int = 4;
const SILENT: c_int = 0x8000;
/// More questions at once than any module asks.
const MESSAGES_MAX: c_int = 32;

/// Asks whether `password`, which ends in NUL, is that of `user`, and whether the account may be
/// used. Why not; `None`: why, yes.
pub(crate) fn ask(
    service: &CStr,
    user: &CStr,
    from: &CStr,
    password: &[u8],
) -> Result<Option<String>, String> {
    let missing = |error| format!("PAM is not to be had: {error}");
    // SAFETY: libpam's initializers do nothing that we would have to see to.
    let library = unsafe { Library::new("libpam.so.0") }.map_err(missing)?;
    // SAFETY: these are the functions' types in `security/pam_appl.h`.
    let (start, set_item, authenticate, account, end, words) = unsafe {
        (
            library.get::<Start>(b"pam_start\0").map_err(missing)?,
            library.get::<SetItem>(b"pam_set_item\0").map_err(missing)?,
            library.get::<Step>(b"pam_authenticate\0").map_err(missing)?,
            library.get::<Step>(b"pam_acct_mgmt\0").map_err(missing)?,
            library.get::<Step>(b"pam_end\0").map_err(missing)?,
            library.get::<Words>(b"pam_strerror\0").map_err(missing)?,
        )
    };
    let data = password.as_ptr().cast_mut().cast();
    let conversation = Conversation { talk, data };
    let mut handle = ptr::null_mut();
    // SAFETY: both strings end in NUL, and the conversation outlives the session.
    let mut code =
        unsafe { start(service.as_ptr(), user.as_ptr(), &raw const conversation, &raw mut handle) };
    if code != SUCCESS || handle.is_null() {
        return Err(format!("pam_start failed with code {code}"));
    }
    if !from.is_empty() {
        // SAFETY: the session is open; the library copies the text.
        code = unsafe { set_item(handle, RHOST, from.as_ptr().cast()) };
    }
    for step in [authenticate, account] {
        if code == SUCCESS {
            // SAFETY: the session is open.
            code = unsafe { step(handle, SILENT) };
        }
    }
    let why = (code != SUCCESS).then(|| {
        // SAFETY: the text is static, or lives as long as the session.
        let text = unsafe { words(handle, code) };
        if text.is_null() {
            return format!("code {code}");
        }
        // SAFETY: it is not null, and a C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    });
    // SAFETY: the session is open, and not used after this.
    unsafe { end(handle, code) };
    Ok(why)
}

/// Every question that wants an answer gets the password; what is only told is not looked at.
///
/// # Safety
/// As the library calls it: `count` messages, and `data` points to the password.
unsafe extern "C" fn talk(
    count: c_int,
    messages: *mut *const Message,
    responses: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    let Some(len) = usize::try_from(count).ok().filter(|_| (1..=MESSAGES_MAX).contains(&count))
    else {
        return CONV_ERR;
    };
    // SAFETY: plain allocation; the library frees the answers, and each text in them.
    let answers = unsafe { libc::calloc(len, size_of::<Response>()) }.cast::<Response>();
    if answers.is_null() {
        return BUF_ERR;
    }
    for at in 0..len {
        // SAFETY: there are `len` of both, by the library's word and by the allocation.
        let (message, answer) = unsafe { (&**messages.add(at), &mut *answers.add(at)) };
        if matches!(message.style, PROMPT_ECHO_OFF | PROMPT_ECHO_ON) {
            // SAFETY: `data` is the password, which ends in NUL.
            answer.text = unsafe { libc::strdup(data.cast()) };
        }
    }
    // SAFETY: the library gave us the place for it.
    unsafe { *responses = answers };
    SUCCESS
}
