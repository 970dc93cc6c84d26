/// How bytes that are loaded will be used.
///
/// The default is the plainest: this process alone reads all of them soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Need {
    /// Which of them will be touched.
    pub touch: Touch,
    /// In which form.
    pub form: Form,
    /// Processes of this machine that load the same bytes at about the same time, this one among them.
    pub processes: usize,
}

/// Which of the loaded bytes will be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Touch {
    /// All, soon, mostly from start to end.
    #[default]
    All,
    /// Some parts, each from its start to its end.
    Part,
    /// Many of them, here and there, in no order.
    Random,
    /// A few bytes here and there: fewer than about one page of twenty.
    Few,
}

/// What form the loaded bytes are needed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// As they are in the file.
    #[default]
    Shared,
    /// Writable: to be relocated or patched. The file does not change. What is patched takes memory of the process's
    /// own, and mostly all that is loaded does: but for [`Touch::Few`], a copy of all is often the fastest way.
    Patched,
    /// Read once, to be copied, decoded or sent somewhere else.
    Copied,
}

impl Default for Need {
    fn default() -> Self {
        Self {
            touch: Touch::All,
            form: Form::Shared,
            processes: 1,
        }
    }
}
