pub(crate) fn step() {}
