//! An image that arrives: its files, what is wanted of it, and the requests for that.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use std::time::Duration;

use brisk_http::CacheBody;
use brisk_remote::{
    About, Background, Class, Descriptor, Entry, OpenOptions, Presence, RemoteUrl, Schedule, UNIT,
    digits, now, open_own,
};
use http::{Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::answer::{Judged, judge, validator_of};
use crate::log::say;
use crate::origin::{Origin, Part, next_piece, reasons};
use crate::pace::{LEAST, LEAST_IN, Pace};
use crate::refusal::Refusal;
use crate::registry::refused;
use crate::s3::{Refused, why_refused};
use crate::sums;

/// The first and the longest pause after a request that failed. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause that a server can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The rest arrives when nobody has waited for so long.
const IDLE: Duration = Duration::from_secs(2);

/// How often what is known of the image is written.
const SAVE: Duration = Duration::from_secs(2);

/// How long an answer that something will never come counts. Then the server is asked again.
const NEVER: Duration = Duration::from_secs(1);

/// How far the whole was compared with what it should be.
#[derive(Default)]
enum Check {
    /// It will be, when all is there.
    #[default]
    Due,
    Running,
    /// It could not be, and why. It is tried again when somebody asks for the whole.
    Failed(String),
}

/// What all images share: they come over one line.
#[derive(Default)]
pub struct Line {
    /// How many requests are under way for what a launch is known to need.
    urgent: Cell<usize>,
    /// Tells that there are none any more.
    calm: Notify,
}

/// An image that arrives.
pub struct Image {
    /// Where it is asked for now: an image that a root hash names may be at several places.
    url: RefCell<RemoteUrl>,
    origin: Rc<Origin>,
    line: Rc<Line>,
    entry: RefCell<Entry>,
    file: File,
    /// None while the image is complete.
    map: RefCell<Option<File>>,
    presence: Presence,
    options: RefCell<OpenOptions>,
    schedule: RefCell<Schedule>,
    /// Connections about it.
    readers: Cell<usize>,
    /// When there was progress last, or the first bytes were wanted.
    progress: Cell<Instant>,
    pace: RefCell<Pace>,
    /// When a program last waited.
    waited: Cell<Instant>,
    /// Why nothing comes at the moment.
    problem: RefCell<Option<String>>,
    /// Why nothing will ever come, and since when.
    never: RefCell<Option<(Instant, String)>>,
    /// No request is sent before this.
    not_before: Cell<Instant>,
    pause: Cell<Duration>,
    /// The server has no ranges, so one request brings everything.
    has_no_ranges: Cell<bool>,
    /// Whether a request is under way that brings everything.
    brings_all: Cell<bool>,
    /// Bytes that may come now for what nobody waits for, if that is limited, and when that was counted.
    allowance: Cell<(f64, Instant)>,
    /// Tells what waits for the limit that a program waits.
    missed: Notify,
    work: Notify,
    news: watch::Sender<u64>,
    busy_since: Cell<Option<Instant>>,
    check: RefCell<Check>,
    /// What comes before the rest, in order, when that is wanted: the files of which the hot pack has pages.
    opened: RefCell<Vec<Range<u64>>>,
    keeps_account: Cell<bool>,
    /// The rest is wanted, and need not be wanted again.
    wants_rest: Cell<bool>,
    is_restoring: Cell<bool>,
    /// What was here and wrong, and has not come again.
    renewed: RefCell<Vec<Range<u64>>>,
}

impl Image {
    /// The image of this entry, of which some or all may be there.
    pub fn open(
        mut entry: Entry,
        url: RemoteUrl,
        blob: Option<String>,
        origin: Rc<Origin>,
        line: Rc<Line>,
        options: OpenOptions,
    ) -> io::Result<Rc<Self>> {
        // Who reads it keeps it in the cache, and not who brings it.
        let file = open_own(&entry.image_path(), false)?;
        let presence = Presence::nothing(entry.about.len);
        let mut before = None;
        let map = match open_own(&entry.map_path(), false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && entry.about.is_complete => {
                presence.set(&(0..entry.about.len));
                None
            }
            map => {
                // A program may have noted its use while a wrong part was taken out of a whole image.
                entry.about.is_complete = false;
                let map = map?;
                before = take_map(&map, &entry.about, &presence)?;
                Some(map)
            }
        };
        entry.about.boot = boot();
        entry.about.options = options.clone();
        entry.about.used = brisk_remote::now();
        let now = Instant::now();
        let image = Rc::new(Self {
            url: RefCell::new(url),
            origin,
            line,
            entry: RefCell::new(entry),
            file,
            map: RefCell::new(map),
            presence,
            options: RefCell::new(options),
            schedule: RefCell::default(),
            readers: Cell::new(0),
            progress: Cell::new(now),
            pace: RefCell::new(Pace::new(now)),
            waited: Cell::new(now),
            problem: RefCell::default(),
            never: RefCell::default(),
            not_before: Cell::new(now),
            pause: Cell::new(FIRST_PAUSE),
            has_no_ranges: Cell::new(false),
            brings_all: Cell::new(false),
            allowance: Cell::new((0.0, now)),
            missed: Notify::new(),
            work: Notify::new(),
            news: watch::Sender::new(0),
            busy_since: Cell::new(None),
            check: RefCell::default(),
            opened: RefCell::default(),
            keeps_account: Cell::new(false),
            wants_rest: Cell::new(false),
            is_restoring: Cell::new(false),
            renewed: RefCell::default(),
        });
        image.settle_url(blob);
        if !image.is_complete() {
            image.save();
            image.start();
        }
        if let Some(before) = before {
            image.is_restoring.set(true);
            spawn_local(Rc::clone(&image).restore(before));
        }
        Ok(image)
    }

    /// Begins to fetch what is absent.
    fn start(self: &Rc<Self>) {
        spawn_local(Rc::clone(self).pump());
        if !self.keeps_account.replace(true) {
            spawn_local(Rc::clone(self).keep_account());
        }
    }

    /// Takes of what was there `before` another boot what the disk has got. Nothing is asked for before that is known.
    async fn restore(self: Rc<Self>, before: Presence) {
        self.take_right(&before).await;
        self.is_restoring.set(false);
        self.work.notify_one();
    }

    async fn take_right(&self, before: &Presence) {
        let len = self.presence.len();
        for chunk in sums::chunks(&(0..len), len) {
            if !before.has(&chunk) || self.presence.has(&chunk) {
                continue;
            }
            let map = self.map.borrow().as_ref().map(File::try_clone);
            let (Ok(file), Some(Ok(map))) = (self.file.try_clone(), map) else {
                return;
            };
            let asked = chunk.clone();
            let right = move || sums::is_right(&file, &map, &asked, len);
            if tokio::task::spawn_blocking(right)
                .await
                .is_ok_and(|is_right| is_right)
            {
                self.presence.set(&chunk);
                if let Err(e) = self.write_map(&chunk) {
                    say!("{}: the map cannot be written: {e}", self.url.borrow());
                }
                self.note_progress();
                self.news.send_modify(|n| *n += 1);
            }
        }
    }

    /// The user names this URL now. `blob`: what it is in the registry of that.
    pub fn set_url(&self, url: &RemoteUrl, blob: Option<String>) {
        *self.url.borrow_mut() = url.clone();
        self.settle_url(blob);
    }

    fn settle_url(&self, blob: Option<String>) {
        let (url, mut entry) = (self.url.borrow(), self.entry.borrow_mut());
        entry.about.blob = blob;
        if entry.about.url != url.as_str() {
            entry.about.url = url.as_str().to_owned();
            entry.about.validator = None;
            *self.never.borrow_mut() = None;
        }
    }

    /// What tells the file on the server from a later one, of which `bytes` are asked for. None if a root hash does, whichever server
    /// sends the blocks, or the digest of a blob. If only the server has said the root hash, a wrong block may be one of a later file.
    fn validator(&self, bytes: &Range<u64>) -> Option<String> {
        let about = &self.entry.borrow().about;
        let is_known = about.is_vouched || about.root.is_some() && !self.is_renewed(bytes);
        let is_needed = !is_known && about.blob.is_none();
        about.validator.clone().filter(|_| is_needed)
    }

    /// Whether a part of `bytes` was here and wrong.
    fn is_renewed(&self, bytes: &Range<u64>) -> bool {
        let overlaps = |range: &Range<u64>| range.start < bytes.end && bytes.start < range.end;
        self.renewed.borrow().iter().any(overlaps)
    }

    /// Asks for a part of it where it is. Some servers refuse ranges; they are asked for all of it.
    async fn ask(
        &self,
        bytes: Range<u64>,
        validator: Option<&str>,
    ) -> Result<Response<CacheBody>, Fault> {
        let part = Part::Bytes(bytes);
        let response = self.ask_for(Some(&part), validator).await?;
        match response.status() {
            // What an object store says of that has another reason.
            StatusCode::BAD_REQUEST if response.extensions().get::<Refused>().is_none() => {
                self.ask_for(None, validator).await
            }
            _ => Ok(response),
        }
    }

    async fn ask_for(
        &self,
        part: Option<&Part>,
        validator: Option<&str>,
    ) -> Result<Response<CacheBody>, Fault> {
        let url = self.url.borrow().clone();
        let blob = self.entry.borrow().about.blob.clone();
        if let (Some(name), Some(blob)) = (url.registry(), blob) {
            let response = self.origin.blob(&name, &blob, part).await;
            return match response {
                Ok(response) if matches!(response.status().as_u16(), 401 | 403) => {
                    Err(Fault::Never(refused(&name)))
                }
                Ok(response) => Ok(response),
                Err(Refusal::Login(_)) => Err(Fault::Never(refused(&name))),
                Err(Refusal::Never(why)) => Err(Fault::Never(why)),
                Err(Refusal::Later(why) | Refusal::NotSoon(why)) => Err(Fault::Later(why, None)),
            };
        }
        let response = self.origin.part(&url, part, validator).await;
        response.map_err(|why| match why {
            Refusal::Login(store) => Fault::Never(format!(
                "the key for {store} is not here any more; start the program again"
            )),
            Refusal::Never(why) => Fault::Never(why),
            Refusal::Later(why) | Refusal::NotSoon(why) => Fault::Later(why, None),
        })
    }

    /// Whether this is what is in the cache under this name now: another program may have removed the entry.
    pub fn is_of(&self, entry: &Entry) -> bool {
        let here = self.file.metadata();
        let there = std::fs::metadata(entry.image_path());
        let same = here.and_then(|here| Ok((here, there?)));
        same.is_ok_and(|(here, there)| here.dev() == there.dev() && here.ino() == there.ino())
    }

    /// What a user wants now.
    pub fn set_options(&self, options: OpenOptions) {
        let mut entry = self.entry.borrow_mut();
        entry.about.used = now();
        entry.about.options = options.clone();
        *self.options.borrow_mut() = options;
        self.work.notify_one();
    }

    /// What the publisher says of the image decides what is asked for first.
    pub fn plan(&self, descriptor: &Descriptor) {
        let mut schedule = self.schedule.borrow_mut();
        for bytes in descriptor.first_needed() {
            schedule.want(Class::Tables, bytes);
        }
        if let Some(frames) = &descriptor.frames {
            schedule.want(Class::Pack, frames.clone());
            if let Some(end) = descriptor.neighbours {
                schedule.want(Class::Neighbours, frames.end..end);
            }
        }
        self.work.notify_one();
    }

    /// Somebody wants bytes.
    pub fn want(&self, class: Class, bytes: Range<u64>) {
        let bytes = bytes.start..bytes.end.min(self.presence.len());
        let is_unasked =
            class >= Class::Neighbours && self.options.borrow().background == Background::Never;
        if is_unasked || self.presence.has(&bytes) {
            return;
        }
        if class == Class::Opened {
            let mut opened = self.opened.borrow_mut();
            if !opened.contains(&bytes) {
                opened.push(bytes);
            }
            return;
        }
        if class == Class::Miss {
            self.waited.set(Instant::now());
        }
        let is_old = self
            .never
            .borrow()
            .as_ref()
            .is_some_and(|(since, _)| since.elapsed() > NEVER);
        if is_old {
            *self.never.borrow_mut() = None;
            self.not_before.set(Instant::now());
        }
        if !self.schedule.borrow().is_busy() && self.problem.borrow().is_none() {
            // Nothing was wanted for a while, so nothing has failed to come.
            self.progress.set(Instant::now());
        }
        self.schedule.borrow_mut().want(class, bytes);
        if class == Class::Miss {
            self.missed.notify_waiters();
        }
        self.work.notify_one();
    }

    /// Bytes are wrong, and are asked for again.
    pub fn renew(self: &Rc<Self>, bytes: Range<u64>) {
        let bytes = self.presence.whole_units(&bytes);
        self.presence.clear(&bytes);
        self.wants_rest.set(false);
        let written = match self.is_complete() {
            true => self.arrive_again(),
            false => self.write_map(&bytes),
        };
        if let Err(e) = written {
            say!("{}: the map cannot be written: {e}", self.url.borrow());
        }
        {
            let mut renewed = self.renewed.borrow_mut();
            renewed.retain(|range| !self.presence.has(range) && *range != bytes);
            renewed.push(bytes.clone());
        }
        self.want(Class::Miss, bytes);
    }

    /// The image was complete, and a part of it is wrong: it arrives again, as far as it is absent.
    fn arrive_again(self: &Rc<Self>) -> io::Result<()> {
        self.entry.borrow_mut().about.is_complete = false;
        self.start();
        // Without a map, others go on believing the entry, and find the same fault.
        let map = open_own(&self.entry.borrow().map_path(), true)?;
        let bytes = self
            .presence
            .map_bytes(&(0..Presence::map_len(self.presence.len())));
        map.write_all_at(&bytes, 0)?;
        *self.map.borrow_mut() = Some(map);
        self.save();
        Ok(())
    }

    /// Whether bytes are there.
    pub fn has(&self, bytes: &Range<u64>) -> bool {
        self.presence.has(bytes)
    }

    /// Why `bytes`, which were wanted at `since`, do not come. None if they may still come.
    pub fn failure(&self, bytes: &Range<u64>, since: Instant) -> Option<String> {
        let why = self.problem(since)?;
        let url = self.url.borrow();
        Some(match self.is_renewed(bytes) {
            true => format!(
                "{url}: a part of the image that was here is damaged, and must come again; start it when the server can be reached: {why}"
            ),
            false => format!("{url}: {why}"),
        })
    }

    fn problem(&self, since: Instant) -> Option<String> {
        if let Some((_, why)) = &*self.never.borrow() {
            return Some(why.clone());
        }
        let wait = Duration::from_secs(self.options.borrow().wait);
        let last = self.progress.get().max(since);
        let problem = self.problem.borrow();
        (last.elapsed() >= wait).then(|| nothing_for(wait, problem.as_deref()))
    }

    /// Who waits is to see that the server is back before the wait is over.
    fn longest_pause(&self) -> Duration {
        let wait = Duration::from_secs(self.options.borrow().wait);
        (wait / 4).clamp(FIRST_PAUSE, LONGEST_PAUSE)
    }

    /// Tells when something has come, or does not come.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Somebody has waited so long.
    pub fn note_wait(&self, time: Duration) {
        let mut entry = self.entry.borrow_mut();
        entry.about.counts.waits += 1;
        entry.about.counts.waited_ms += u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    }

    /// Whether all of it is there and was compared, so that nobody needs this any more.
    pub fn is_complete(&self) -> bool {
        self.entry.borrow().about.is_complete
    }

    /// Waits until the whole is there and was compared.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub async fn whole(&self) -> Result<(), String> {
        let (mut news, since) = (self.news(), Instant::now());
        if matches!(*self.check.borrow(), Check::Failed(_)) {
            self.check.take();
            self.work.notify_one();
        }
        while !self.is_complete() {
            if let Check::Failed(why) = &*self.check.borrow() {
                return Err(why.clone());
            }
            let fault = self.entry.borrow().about.fault.clone();
            if !self.presence.is_complete()
                && let Some(why) = fault.or_else(|| self.problem(since))
            {
                return Err(why);
            }
            // This lives as long as the image.
            news.changed().await.ok();
        }
        Ok(())
    }

    /// A program reads it from now on.
    pub fn enter(&self) {
        self.readers.update(|readers| readers + 1);
    }

    /// A program does not read it any more. If it was the last one, nobody waits for anything.
    pub fn leave(&self) {
        self.readers.update(|readers| readers.saturating_sub(1));
        if self.readers.get() == 0 {
            self.schedule.borrow_mut().drop_misses();
        }
    }

    /// Whether this brings something though nobody may read it, or the whole is compared. A request to a server that sends nothing for
    /// as long as a reader would wait brings nothing.
    pub fn is_at_work(&self) -> bool {
        let wait = Duration::from_secs(self.options.borrow().wait) + self.held_back();
        let comes = self.schedule.borrow().is_busy() && self.progress.get().elapsed() < wait;
        comes || matches!(*self.check.borrow(), Check::Running)
    }

    /// Writes what is known of the image. What cannot be written is said in the log.
    pub fn save(&self) {
        if let Err(e) = self.try_save() {
            say!("{}: {}", self.url.borrow(), reasons(&e));
        }
    }

    fn try_save(&self) -> Result<(), brisk_remote::Error> {
        // An entry that somebody has removed must not come back, and one that was made anew is another image's.
        let entry = self.entry.borrow();
        if self.is_of(&entry) && (entry.map_path().exists() || entry.about.is_complete) {
            entry.save()?;
        }
        Ok(())
    }

    async fn keep_account(self: Rc<Self>) {
        let mut saved = About::default();
        while !self.is_complete() {
            sleep(SAVE).await;
            let about = self.entry.borrow().about.clone();
            if about != saved {
                self.save();
                saved = about;
            }
            // Who waits looks whether it is too late.
            self.news.send_modify(|n| *n += 1);
        }
        self.keeps_account.set(false);
    }

    /// Sends what is to be sent, until all is there.
    async fn pump(self: Rc<Self>) {
        while !self.is_complete() {
            self.start_requests();
            let is_due = matches!(*self.check.borrow(), Check::Due);
            if self.presence.is_complete() && is_due {
                self.finish().await;
            }
            let next = self
                .not_before
                .get()
                .max(Instant::now() + Duration::from_millis(1));
            let idle = self
                .idle_at()
                .unwrap_or(next + Duration::from_secs(3600))
                .max(next);
            let wake = match self.not_before.get() > Instant::now() {
                true => next,
                false => idle,
            };
            tokio::select! {
                () = self.work.notified() => {}
                () = self.line.calm.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// When the rest may be wanted. None if never, or if it is wanted already.
    fn idle_at(&self) -> Option<Instant> {
        // What was whole and wrong does not come again and again by itself.
        if self.wants_rest.get()
            || self.presence.is_complete()
            || self.never.borrow().is_some()
            || self.entry.borrow().about.fault.is_some()
            || self.schedule.borrow().wants_before(Class::Rest)
        {
            return None;
        }
        match self.options.borrow().background {
            Background::Never => None,
            Background::Full => Some(Instant::now()),
            Background::Idle => Some(self.waited.get() + IDLE),
        }
    }

    fn start_requests(self: &Rc<Self>) {
        let is_early = Instant::now() < self.not_before.get() || self.is_restoring.get();
        if is_early || self.never.borrow().is_some() {
            return;
        }
        if self.idle_at().is_some_and(|at| at <= Instant::now()) {
            self.wants_rest.set(true);
            let mut schedule = self.schedule.borrow_mut();
            for bytes in self.opened.borrow_mut().drain(..) {
                schedule.want(Class::Opened, bytes);
            }
            schedule.want(Class::Rest, 0..self.presence.len());
        }
        loop {
            if self.has_no_ranges.get() && self.schedule.borrow().is_busy() {
                return;
            }
            let next = {
                let mut schedule = self.schedule.borrow_mut();
                schedule.set_line_needed(self.line.urgent.get() > 0);
                schedule.next(&self.presence)
            };
            let Some(request) = next else {
                return;
            };
            let of_line = usize::from(request.class.is_urgent());
            self.line.urgent.update(|urgent| urgent + of_line);
            if self.busy_since.get().is_none() {
                self.busy_since.set(Some(Instant::now()));
            }
            let image = Rc::clone(self);
            spawn_local(async move {
                let result = image.fetch(request.id, request.bytes, request.class).await;
                image.line.urgent.update(|urgent| urgent - of_line);
                image.note_end(request.id, result);
                if image.line.urgent.get() == 0 {
                    image.line.calm.notify_waiters();
                }
            });
        }
    }

    /// Takes what follows in an answer: these bytes of the file.
    pub fn take(self: &Rc<Self>, part: Range<u64>, response: Response<CacheBody>) {
        let id = self
            .schedule
            .borrow_mut()
            .adopt(Class::Tables, part.clone());
        self.entry.borrow_mut().about.counts.requests += 1;
        let image = Rc::clone(self);
        spawn_local(async move {
            let result = image.receive(id, part, response).await;
            image.note_end(id, result);
        });
    }

    fn note_end(&self, id: u64, result: Result<(), Fault>) {
        self.schedule.borrow_mut().ended(id);
        if !self.schedule.borrow().is_busy()
            && let Some(since) = self.busy_since.take()
        {
            let busy = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.entry.borrow_mut().about.counts.busy_ms += busy;
        }
        match result {
            Ok(()) => {}
            Err(Fault::Later(why, after)) => {
                let pause = after.unwrap_or(self.pause.get()).min(LONGEST_WAIT);
                self.pause
                    .set((self.pause.get() * 2).min(self.longest_pause()));
                self.not_before
                    .set(self.not_before.get().max(Instant::now() + pause));
                *self.problem.borrow_mut() = Some(why);
            }
            Err(Fault::Never(why)) => {
                *self.never.borrow_mut() = Some((Instant::now(), why));
                self.want_nothing();
            }
        }
        self.work.notify_one();
        self.news.send_modify(|n| *n += 1);
    }

    /// Sends a request, and writes what comes.
    async fn fetch(&self, id: u64, bytes: Range<u64>, class: Class) -> Result<(), Fault> {
        if class > Class::Pack && !self.respect_limit(&bytes).await {
            return Ok(());
        }
        let validator = self.validator(&bytes);
        self.entry.borrow_mut().about.counts.requests += 1;
        let response = self.ask(bytes.clone(), validator.as_deref()).await?;
        let judged = judge(
            response.status(),
            response.headers(),
            &bytes,
            Some(self.presence.len()),
            validator.as_deref(),
        );
        if self.entry.borrow().about.validator.is_none() {
            let about = &mut self.entry.borrow_mut().about;
            // The place of a blob may have an `ETag` of its own.
            about.validator = validator_of(response.headers()).filter(|_| about.blob.is_none());
        }
        let part = match judged {
            Judged::Part(part) => part,
            // Another request brings everything.
            Judged::Whole if self.has_no_ranges.replace(true) && self.brings_all.get() => {
                return Ok(());
            }
            Judged::Whole => {
                self.brings_all.set(true);
                let all = 0..self.presence.len();
                self.schedule.borrow_mut().extend(id, all.clone());
                all
            }
            Judged::Later(why, after) => return Err(Fault::Later(why, after)),
            Judged::Changed(why) => return Err(Fault::Never(self.changed(&why))),
            Judged::Never(why) => return Err(Fault::Never(why_refused(&response, why))),
        };
        let is_all = self.has_no_ranges.get();
        let received = self.receive(id, part, response).await;
        if is_all {
            self.brings_all.set(false);
        }
        received
    }

    /// The server says that it has another file.
    fn changed(&self, why: &str) -> String {
        if self.entry.borrow().about.root.is_none() {
            return format!("{why}; brisk run --refresh URL starts from the new one");
        }
        // It may have lied before.
        self.set_doubt(true);
        format!("{why}; the next start asks the server anew what it has")
    }

    /// The server was asked what it has, and says the same. Whether that is so, the next request shows.
    pub fn believe(&self) {
        self.entry.borrow_mut().about.validator = None;
        self.set_doubt(false);
        *self.never.borrow_mut() = None;
    }

    /// Whether the server is asked again what it has, before the image is used again.
    fn set_doubt(&self, is_doubted: bool) {
        if self.entry.borrow().about.is_doubted != is_doubted {
            self.entry.borrow_mut().about.is_doubted = is_doubted;
            self.save();
        }
    }

    fn want_nothing(&self) {
        self.schedule.borrow_mut().drop_all();
        self.wants_rest.set(false);
    }

    /// Waits until so many bytes may come for what nobody waits for. False if a program waits meanwhile: it may be for them, and for
    /// what is sent to it there is no limit.
    async fn respect_limit(&self, wanted: &Range<u64>) -> bool {
        let bytes = wanted.end - wanted.start;
        let Some(rate) = self.options.borrow().limit_rate.filter(|rate| *rate > 0) else {
            return true;
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate needs no more than 52 bits"
        )]
        let (rate, bytes) = (rate as f64, bytes as f64);
        let (left, since) = self.allowance.get();
        let left = (left + since.elapsed().as_secs_f64() * rate).min(rate) - bytes;
        self.allowance.set((left, Instant::now()));
        if left >= 0.0 {
            return true;
        }
        let missed = async {
            // A miss that came before this begins to wait tells nothing any more.
            if !self.schedule.borrow().is_missed(wanted) {
                self.missed.notified().await;
            }
        };
        tokio::select! {
            () = sleep(Duration::from_secs_f64(-left / rate)) => true,
            () = missed => {
                let (left, since) = self.allowance.get();
                self.allowance.set((left + bytes, since));
                false
            }
        }
    }

    /// How long what nobody waits for is held back by the limit.
    fn held_back(&self) -> Duration {
        let Some(rate) = self.options.borrow().limit_rate.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate needs no more than 52 bits"
        )]
        let rate = rate as f64;
        Duration::from_secs_f64((-self.allowance.get().0).max(0.0) / rate)
    }

    async fn receive(
        &self,
        id: u64,
        part: Range<u64>,
        response: Response<CacheBody>,
    ) -> Result<(), Fault> {
        let mut body = response.into_body();
        let mut at = part.start;
        // Bytes of a unit that is not whole yet.
        let mut unwritten: Vec<u8> = Vec::new();
        let mut measured = (Instant::now(), at);
        loop {
            let Some(end) = self.schedule.borrow_mut().arrived(id, at) else {
                return Ok(());
            };
            if at >= end {
                // All has come, or a program waits for what follows, and another request brings that.
                self.note_progress();
                return Ok(());
            }
            let piece = timeout(LEAST_IN, next_piece(&mut body)).await;
            let Ok(piece) = piece else {
                return Err(Fault::Later(
                    "the server has stopped in the middle of an answer".into(),
                    None,
                ));
            };
            let Some(piece) = piece else {
                break;
            };
            let piece = piece.map_err(|why| Fault::Later(why, None))?;
            if piece.len() as u64 > part.end.saturating_sub(at) {
                return Err(Fault::Never(
                    "the server sends more bytes than it said".into(),
                ));
            }
            let now = Instant::now();
            self.entry.borrow_mut().about.counts.bytes += piece.len() as u64;
            at += piece.len() as u64;
            unwritten.extend_from_slice(&piece);
            self.write_whole_units(&mut unwritten, at)?;
            if now - measured.0 > LEAST_IN {
                if at - measured.1 < LEAST && at < part.end {
                    return Err(Fault::Later("the server sends too slowly".into(), None));
                }
                measured = (now, at);
            }
        }
        match at < part.end {
            true => Err(Fault::Later(
                format!(
                    "the answer ended after {} of {} bytes",
                    at - part.start,
                    part.end - part.start
                ),
                None,
            )),
            false => Ok(()),
        }
    }

    /// Writes what is whole of `unwritten`, which ends at byte `at`, and leaves the rest.
    fn write_whole_units(&self, unwritten: &mut Vec<u8>, at: u64) -> Result<(), Fault> {
        let is_end = at >= self.presence.len();
        let start = at - unwritten.len() as u64;
        let whole = match is_end {
            true => unwritten.len(),
            false => unwritten.len() - usize::try_from(at % UNIT).unwrap_or(0).min(unwritten.len()),
        };
        if whole == 0 {
            return Ok(());
        }
        let failed = |e: io::Error| {
            let full =
                e.kind() == io::ErrorKind::StorageFull || e.kind() == io::ErrorKind::QuotaExceeded;
            let advice = if full {
                "; free some space, or brisk remote gc"
            } else {
                ""
            };
            Fault::Later(
                format!("what has come cannot be written: {e}{advice}"),
                Some(self.longest_pause()),
            )
        };
        let bytes = unwritten.get(..whole).unwrap_or(&[]);
        self.file.write_all_at(bytes, start).map_err(failed)?;
        let written = start..start + whole as u64;
        // A server without ranges may send the same again and again, and break off before what is wanted.
        let is_new = !self.presence.has(&written);
        self.presence.set(&written);
        if let Some(map) = &*self.map.borrow()
            && self.entry.borrow().about.root.is_none()
        {
            sums::note(&self.file, map, &self.presence, &written).map_err(failed)?;
        }
        self.write_map(&written).map_err(failed)?;
        unwritten.drain(..whole);
        // What has come and cannot be written is no progress.
        if is_new && self.pace.borrow_mut().came(whole as u64, Instant::now()) {
            self.note_progress();
        }
        self.news.send_modify(|n| *n += 1);
        Ok(())
    }

    fn note_progress(&self) {
        self.progress.set(Instant::now());
        self.pause.set(FIRST_PAUSE);
        *self.problem.borrow_mut() = None;
    }

    fn write_map(&self, bytes: &Range<u64>) -> io::Result<()> {
        let range = self.presence.map_range(bytes);
        match &*self.map.borrow() {
            Some(map) => map.write_all_at(&self.presence.map_bytes(&range), range.start),
            None => Ok(()),
        }
    }

    /// All bytes are there: compares them with the digest that the file should have. Then it is an ordinary file.
    async fn finish(&self) {
        self.check.replace(Check::Running);
        let check = match self.complete().await {
            Ok(()) => Check::Due,
            Err(why) => {
                say!("{}: {why}", self.url.borrow());
                Check::Failed(why)
            }
        };
        self.check.replace(check);
        self.news.send_modify(|n| *n += 1);
    }

    /// Fails if the disk does.
    async fn complete(&self) -> Result<(), String> {
        let path = self.entry.borrow().image_path();
        let failed = |what, e: io::Error| format!("{} cannot be {what}: {e}", path.display());
        let not_read = |e| failed("read back", e);
        let file = self.file.try_clone().map_err(not_read)?;
        let len = self.presence.len();
        let digest = tokio::task::spawn_blocking(move || sha256_of(&file, len)).await;
        let digest = digest.map_err(|e| e.to_string())?.map_err(not_read)?;
        if !self.presence.is_complete() {
            // Somebody has found wrong bytes meanwhile.
            return Ok(());
        }
        let (wanted, is_vouched) = {
            let about = &self.entry.borrow().about;
            (about.sha256.clone(), about.is_vouched)
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
            let why = format!(
                "the whole image has the SHA-256 {digest}, and its publisher says {wanted}"
            );
            if !is_vouched {
                let why = format!("{why}; it was dropped from the cache");
                say!("{}: {why}", self.url.borrow());
                return self.drop_all(&why).map_err(|e| failed("dropped", e));
            }
            // The server lies about the digest, or about a block, which whoever reads that finds out by the root hash.
            say!("{}: {why}", self.url.borrow());
            self.entry.borrow_mut().about.sha256 = None;
        }
        // What is complete is believed after a crash of the system.
        self.file.sync_data().map_err(|e| failed("written", e))?;
        {
            let about = &mut self.entry.borrow_mut().about;
            (about.is_complete, about.fault) = (true, None);
        }
        // The map says what is there until this does.
        if let Err(e) = self.try_save() {
            self.entry.borrow_mut().about.is_complete = false;
            return Err(reasons(&e));
        }
        // Those who read it have it open.
        if self.is_of(&self.entry.borrow()) {
            std::fs::remove_file(self.entry.borrow().map_path()).ok();
        }
        self.map.borrow_mut().take();
        Ok(())
    }

    /// The whole is not what the server has said of it.
    fn drop_all(&self, why: &str) -> io::Result<()> {
        self.presence.clear(&(0..self.presence.len()));
        if let Some(map) = &*self.map.borrow() {
            map.set_len(0)?;
        }
        *self.never.borrow_mut() = Some((Instant::now(), why.to_owned()));
        self.want_nothing();
        {
            let about = &mut self.entry.borrow_mut().about;
            about.fault = Some(why.to_owned());
            // Parts of two files, if the server has another one by now.
            about.is_doubted = about.root.is_some();
        }
        self.save();
        Ok(())
    }
}

/// Why a request brought less than it should.
pub enum Fault {
    /// Another one may bring it, after this time if the server says one.
    Later(String, Option<Duration>),
    Never(String),
}

/// Why nothing comes any more. `why`: what is known of that.
pub fn nothing_for(wait: Duration, why: Option<&str>) -> String {
    let why = why.unwrap_or("the server sends nothing, or too slowly");
    format!("nothing has come for {} s: {why}", wait.as_secs())
}

fn sha256_of(file: &File, len: u64) -> io::Result<String> {
    rustix::process::nice(19).ok();
    let mut hasher = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < len {
        let n = usize::try_from(len - at)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let part = &mut buf[..n];
        file.read_exact_at(part, at)?;
        hasher.update(&*part);
        at += n as u64;
    }
    Ok(digits(&hasher.finalize()))
}

/// Takes what a map says is there. After another boot it is in doubt without a hash tree, and returned.
fn take_map(map: &File, about: &About, presence: &Presence) -> io::Result<Option<Presence>> {
    let mut bytes = vec![0; usize::try_from(Presence::map_len(about.len)).unwrap_or(0)];
    let read = read_up_to(map, &mut bytes)?;
    let bits = bytes.get(..read).unwrap_or(&[]);
    if about.root.is_some() || about.boot == boot() {
        presence.take_map(0, bits);
        return Ok(None);
    }
    let before = Presence::nothing(about.len);
    before.take_map(0, bits);
    map.write_all_at(&vec![0; read], 0)?;
    Ok(Some(before))
}

fn read_up_to(file: &File, buf: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buf.len() {
        match file.read_at(&mut buf[have..], have as u64)? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}

/// The boot of the system.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use brisk_remote::RemoteCache;
    use tokio::task::LocalSet;

    use super::*;

    /// Its only reader was ended while it waited.
    #[test]
    fn what_nobody_waits_for_and_a_silent_server_keep_no_fetcher() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = RemoteCache::at(&dir.path().join("remote")).expect("room");
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        let about = About {
            url: format!("http://{address}/app.img"),
            len: 3 * UNIT,
            ..About::default()
        };
        let entry = cache.make("a", &about).expect("room");
        let url = RemoteUrl::parse(&about.url).expect("a URL");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let fetch = async {
            let origin = Rc::new(Origin::new(&dir.path().join("http")).expect("room"));
            let options = OpenOptions {
                background: Background::Never,
                ..OpenOptions::default()
            };
            let image =
                Image::open(entry, url, None, origin, Rc::default(), options).expect("made");
            image.enter();
            image.want(Class::Miss, 0..UNIT);
            while !image.schedule.borrow().is_busy() {
                tokio::task::yield_now().await;
            }
            image.leave();
            assert!(!image.schedule.borrow().is_missed(&(0..UNIT)));
            assert!(image.is_at_work());
            // So long there was no progress.
            image.options.borrow_mut().wait = 0;
            assert!(image.schedule.borrow().is_busy());
            assert!(!image.is_at_work());
            // Unless the user wants it to come slowly.
            image.options.borrow_mut().limit_rate = Some(1);
            image.allowance.set((-1000.0, Instant::now()));
            assert!(image.is_at_work());
        };
        LocalSet::new().block_on(&runtime, fetch);
    }

    /// All has arrived, and the disk has lost a part of it.
    #[test]
    fn what_cannot_be_read_back_is_said_and_tried_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = RemoteCache::at(&dir.path().join("remote")).expect("room");
        let about = About {
            url: "http://127.0.0.1:1/app.img".into(),
            len: 3 * UNIT,
            root: Some("00".repeat(32)),
            ..About::default()
        };
        let entry = cache.make("a", &about).expect("room");
        std::fs::write(entry.map_path(), [0xff; 8]).expect("room");
        let file = open_own(&entry.image_path(), false).expect("made");
        file.set_len(UNIT).expect("room");
        let url = RemoteUrl::parse(&about.url).expect("a URL");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let fetch = async {
            let origin = Rc::new(Origin::new(&dir.path().join("http")).expect("room"));
            let options = OpenOptions::default();
            let image = Image::open(entry.clone(), url, None, origin, Rc::default(), options)
                .expect("made");
            let path = entry.image_path();
            let said = format!("{} cannot be read back: ", path.display());
            let failed = image.whole().await.expect_err("it is too short");
            assert!(failed.starts_with(&said), "{failed}");
            assert!(!image.is_at_work());
            file.set_len(3 * UNIT).expect("room");
            assert_eq!(image.whole().await, Ok(()));
        };
        LocalSet::new().block_on(&runtime, fetch);
        let about = cache.entry("a").expect("no fault").expect("there").about;
        assert!(about.is_complete);
    }
}
