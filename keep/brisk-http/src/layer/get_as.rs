//! Tables that are made of bodies once, and found in their place.

use std::io;

use brisk_cache::{Flight, Hit, Stored};
use bytes::Bytes;
use http::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, Method, StatusCode};
use http_body::Body;
use tokio::task::spawn_blocking;

use super::directory::Directory;
use super::fetch::{Carried, all_of};
use super::fetch_error::{BoxError, FetchError};
use super::service::{CacheService, Shared, Wanted};
use super::table_answer::{Head, Table, TableAnswer, TableError, TableOf, TableSource};
use super::upstream::Upstream;
use crate::body_name::BodyName;
use crate::decision::Failure;
use crate::engine::{Answer, Engine, Exchange, Keep, Step};
use crate::head::Request;
use crate::storage::{Storage, policies_key};
use crate::target::Target;

/// The most bytes of a body that is read into memory, by default.
pub(crate) const MOST_BODY: u64 = 128 << 20;

/// How [`CacheService::get_as`] treats bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableOptions {
    /// The most bytes of a body, which is in memory while its table is made. 128 MiB by default.
    pub most_body: u64,
    /// Whether the body is stored, too, for requests that want it as it is.
    pub keep_body: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            most_body: MOST_BODY,
            keep_body: false,
        }
    }
}

/// A response of which a table is to be made.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TableInput<'a> {
    /// The URL that was asked for.
    pub url: &'a str,
    /// The fields of the response.
    pub headers: &'a HeaderMap,
    /// Its whole body.
    pub body: &'a [u8],
}

/// Makes a table.
type Make<E> = Box<dyn FnOnce(&TableInput<'_>) -> Result<Vec<u8>, E> + Send>;

type Tabled<T, E> = Result<TableAnswer<T>, TableError<E>>;

impl<U> CacheService<U> {
    /// Gets a URL as a table. `make` makes the table of a response, and only the table is stored, in place of the body.
    /// While the response is fresh, and when a 304 says that it holds, the answer borrows the stored table: nothing is
    /// parsed, and nothing is copied. A hit allocates nothing, unless the URL is longer than 200 bytes.
    ///
    /// The request is a GET for the whole: its conditions and ranges are left out. `make` gets a 200, on a thread that may take its time. It is not called if the table of an equal body is stored. A table with
    /// another fingerprint is not found, and the response is fetched anew.
    ///
    /// One fetches at a time, of all tasks and processes. If the future is dropped, its fetch ends.
    ///
    /// # Errors
    ///
    /// [`TableError`]. If `make` fails, what was stored stays as it was.
    pub async fn get_as<T, B, E>(
        &self,
        request: http::Request<B>,
        options: &TableOptions,
        make: impl FnOnce(&TableInput<'_>) -> Result<Vec<u8>, E> + Send + 'static,
    ) -> Tabled<T, E>
    where
        T: Stored + 'static,
        U: Upstream<B>,
        B: Body + Send + 'static,
        E: Send + 'static,
    {
        let (head, _) = request.into_parts();
        let mut wanted = Wanted {
            method: Method::GET,
            url: head.uri.to_string(),
            headers: head.headers,
            extensions: head.extensions,
        };
        if let Some(stored) = self.shared.fetches.stored(&wanted.url) {
            stored.await;
        }
        if let Some(found) = self.shared.found::<T>(&wanted.request()) {
            return Ok(TableAnswer::Table(found));
        }
        for name in [
            RANGE,
            IF_RANGE,
            IF_MATCH,
            IF_NONE_MATCH,
            IF_MODIFIED_SINCE,
            IF_UNMODIFIED_SINCE,
        ] {
            wanted.headers.remove(name);
        }
        let work = Work {
            service: self.clone(),
            engine: self.shared.engine_of::<T>(),
            wanted,
            options: *options,
            make: Box::new(make),
        };
        work.run::<T, B>().await
    }
}

impl Shared {
    fn engine_of<T: Stored>(&self) -> Engine<Directory> {
        let storage = self.engine.storage().with_tables(T::FINGERPRINT);
        self.engine.over(storage)
    }

    /// The table of a fresh response, if it is stored and nothing has to be waited for.
    pub(crate) fn found<T: Stored>(&self, request: &Request<'_>) -> Option<TableOf<T>> {
        self.found_by(&self.quick, request)
    }

    /// The same by an engine, which may wait.
    pub(crate) fn found_by<T: Stored>(
        &self,
        engine: &Engine<Directory>,
        request: &Request<'_>,
    ) -> Option<TableOf<T>> {
        let engine = engine.over(engine.storage().with_tables(T::FINGERPRINT));
        let mut found = engine.find(request, self.now()).ok()??;
        let is_table = found
            .body()
            .is_some_and(|hit| hit.fingerprint() == T::FINGERPRINT);
        let table = found.take_body().filter(|_| is_table)?;
        self.counts.add_hit();
        Some(TableOf::new(
            Head::Found(found),
            Table::Stored(table),
            TableSource::Stored,
        ))
    }
}

/// A request whose table is not at hand.
struct Work<U, E> {
    service: CacheService<U>,
    /// Finds tables in place of bodies, and waits for the disk.
    engine: Engine<Directory>,
    wanted: Wanted,
    options: TableOptions,
    make: Make<E>,
}

/// Where a table that is made is stored.
enum Place {
    Nowhere,
    /// Beside the body that it is made of, whose policy is stored.
    Beside {
        key: String,
        name: BodyName,
    },
    /// With its policy.
    With(Box<Keep>),
}

impl<U, E: Send + 'static> Work<U, E> {
    async fn run<T, B>(self) -> Tabled<T, E>
    where
        T: Stored + 'static,
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let exchange = match begin(&self.service.shared, &self.engine, &self.wanted).await {
            Step::Answer(answer) => return self.hit(answer).await,
            Step::AnswerAndRevalidate(answer, exchange) => {
                return self.revalidate::<T, B>(answer, exchange).await;
            }
            Step::Ask(exchange) => exchange,
        };
        let _flight = flight(&self.service.shared, exchange.key(), true).await;
        // Another may have been faster.
        match begin(&self.service.shared, &self.engine, &self.wanted).await {
            Step::Answer(answer) => self.hit(answer).await,
            Step::Ask(exchange) | Step::AnswerAndRevalidate(_, exchange) => {
                self.fetch::<T, B>(exchange).await
            }
        }
    }

    async fn hit<T: Stored + 'static>(self, answer: Answer<Hit>) -> Tabled<T, E> {
        self.service.shared.counts.add_hit();
        self.answer(answer, TableSource::Stored).await
    }

    /// Answers with what is stored, and asks behind it whether it still holds.
    async fn revalidate<T, B>(
        self,
        mut answer: Answer<Hit>,
        exchange: Box<Exchange<Hit>>,
    ) -> Tabled<T, E>
    where
        T: Stored + 'static,
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let Some(stored) = take_table(&mut answer, TableSource::Stored) else {
            // The table is made of the stored body first. The next request asks.
            return self.hit(answer).await;
        };
        let shared = self.service.shared.clone();
        shared.counts.add_hit();
        shared.fetches.clone().spawn(async move {
            if let Some(_flight) = flight(&self.service.shared, exchange.key(), false).await {
                // Nobody waits for it. If it fails, what is stored stays.
                let _failed = self.fetch::<T, B>(exchange).await.is_err();
            }
        });
        Ok(TableAnswer::Table(stored))
    }

    async fn fetch<T, B>(mut self, exchange: Box<Exchange<Hit>>) -> Tabled<T, E>
    where
        T: Stored + 'static,
        U: Upstream<B>,
        B: Body + Send + 'static,
    {
        let shared = self.service.shared.clone();
        let most = self.options.most_body;
        let carried = shared
            .carry::<U, B>(
                &self.engine,
                &mut self.service.upstream,
                exchange,
                None,
                &self.wanted.extensions,
            )
            .await?;
        match carried {
            Carried::Answer(answer, _, _) => self.answer(answer, TableSource::Validated).await,
            Carried::Keep(kind) if kind.status == StatusCode::OK => {
                let body = collect(&shared, kind.body, kind.len, most).await?;
                let place = Place::With(Box::new(kind.keep));
                self.make(body, kind.headers, place, TableSource::Fetched)
                    .await
            }
            Carried::Keep(kind) => Ok(TableAnswer::Response(shared.read_apart(*kind))),
            Carried::Pass(response) if response.status() == StatusCode::OK => {
                let (head, body) = response.into_parts();
                let body = collect(&shared, body, None, most).await?;
                self.make(body, head.headers, Place::Nowhere, TableSource::Fetched)
                    .await
            }
            Carried::Pass(response) => Ok(TableAnswer::Response(response)),
            Carried::Failed(error, exchange) => {
                let failure = Failure::Disconnected;
                match self.engine.stand_in_for(exchange, failure, shared.now()) {
                    Ok(answer) => self.answer(answer, TableSource::Stored).await,
                    Err(_) => Err(error.into()),
                }
            }
        }
    }

    /// The table of an answer, made now if the answer has the body.
    async fn answer<T: Stored + 'static>(
        self,
        mut answer: Answer<Hit>,
        source: TableSource,
    ) -> Tabled<T, E> {
        if let Some(table) = take_table(&mut answer, source) {
            return Ok(TableAnswer::Table(table));
        }
        let key = Target::parse(&self.wanted.url).map(|key| key.as_str().to_owned());
        match (answer.body, key.zip(answer.name)) {
            (Some((hit, range)), Some((key, name))) if answer.status == StatusCode::OK => {
                let body = hit.part_bytes(range).map_err(FetchError::stored)?;
                self.make(
                    body,
                    answer.headers,
                    Place::Beside { key, name },
                    TableSource::Body,
                )
                .await
            }
            (body, _) => {
                let answer = Answer { body, ..answer };
                let response = self.service.shared.respond(answer, Some(&self.wanted.url));
                Ok(TableAnswer::Response(response))
            }
        }
    }

    /// Makes a table of a body, and stores it.
    async fn make<T: Stored + 'static>(
        self,
        body: Bytes,
        headers: HeaderMap,
        place: Place,
        source: TableSource,
    ) -> Tabled<T, E> {
        let Self {
            service,
            engine,
            wanted,
            options,
            make,
        } = self;
        let making = spawn_blocking(move || {
            let storage = engine.storage();
            let stored_as = match &place {
                Place::Nowhere => None,
                Place::Beside { key, name } => Some((key.clone(), *name)),
                Place::With(keep) => Some((keep.key().to_owned(), keep.body_name(&body))),
            };
            let stored = match &stored_as {
                Some((key, name)) => storage.table(key, name).map_err(FetchError::stored)?,
                None => None,
            };
            let (table, source) = match stored {
                // The body is equal to the one before.
                Some(hit) => (Table::Stored(hit), TableSource::Validated),
                None => {
                    let input = TableInput {
                        url: &wanted.url,
                        headers: &headers,
                        body: &body,
                    };
                    let table = make(&input).map_err(TableError::Make)?;
                    if T::view(&table).is_none() {
                        return Err(TableError::Layout {
                            len: table.len(),
                            fingerprint: T::FINGERPRINT,
                        });
                    }
                    (Table::Made(table), source)
                }
            };
            let store = || -> io::Result<()> {
                let Some((key, name)) = &stored_as else {
                    return Ok(());
                };
                if let Table::Made(table) = &table {
                    storage.put_table(key, name, table)?;
                    service.shared.counts.add_stored(table.len() as u64);
                }
                let Place::With(keep) = place else {
                    return Ok(());
                };
                if options.keep_body {
                    storage.put_body(key, name, &body)?;
                }
                // The table stands for the body.
                engine.keep_named(*keep, *name, |_, _| Ok(()))?;
                Ok(())
            };
            // That it is not stored is no failure of the request.
            if let Err(e) = store() {
                service.shared.troubles.note(&e);
            }
            Ok(TableOf::new(Head::Fields(headers), table, source))
        });
        match making.await {
            Ok(made) => made.map(TableAnswer::Table),
            Err(e) => match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(FetchError::ended().into()),
            },
        }
    }
}

/// Takes the table out of an answer. None if it has none.
fn take_table<T: Stored>(answer: &mut Answer<Hit>, source: TableSource) -> Option<TableOf<T>> {
    let (table, _) = answer
        .body
        .take_if(|(hit, _)| hit.fingerprint() == T::FINGERPRINT)?;
    let headers = std::mem::take(&mut answer.headers);
    Some(TableOf::new(
        Head::Fields(headers),
        Table::Stored(table),
        source,
    ))
}

async fn begin(shared: &Shared, engine: &Engine<Directory>, wanted: &Wanted) -> Step<Hit> {
    let now = shared.now();
    let (asked, request) = (engine.clone(), wanted.clone());
    let begun = shared.waiting(move |_| asked.begin(&request.request(), now));
    match begun.await {
        Ok(step) => step,
        Err(e) => {
            shared.troubles.note(&io::Error::other(e));
            Step::Ask(engine.bypass(&wanted.request()))
        }
    }
}

/// The right to fetch. None: another has it, or nobody can be asked.
async fn flight(shared: &Shared, key: Option<&str>, wait: bool) -> Option<Flight> {
    match shared.cache.flight(&policies_key(key?), wait).await {
        Ok(flight) => flight,
        Err(e) => {
            shared.troubles.note(&e);
            None
        }
    }
}

/// Reads a body into memory.
async fn collect<UB, E>(
    shared: &Shared,
    body: UB,
    expected: Option<u64>,
    most: u64,
) -> Result<Bytes, TableError<E>>
where
    UB: Body<Data = Bytes>,
    UB::Error: Into<BoxError>,
{
    if expected.is_some_and(|expected| expected > most) {
        return Err(TableError::TooLong { most });
    }
    let Some(all) = all_of(body, most, shared.options.body_timeout).await? else {
        return Err(TableError::TooLong { most });
    };
    let found = all.len() as u64;
    match expected.filter(|expected| *expected != found) {
        Some(expected) => Err(FetchError::length(expected, found).into()),
        None => Ok(all),
    }
}
