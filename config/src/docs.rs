//! `docs/settings.md`, printed from the table.

/// The page.
#[must_use]
pub fn settings_page() -> String {
    todo!()
}
