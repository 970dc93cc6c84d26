//! Takes connections, and ends when it is told to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::clients::{Clients, Place};
use crate::file_stream::{FileStream, Files};
use crate::guarded_stream::{Connection, GuardedStream, Patience};
use crate::proxy::{Fetch, Proxy};
use crate::request_head::MOST_HEAD_BYTES;

/// How long to wait after the system could not give a connection, for example because there are too many open files.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// What bounds the connections of a process.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How many there are.
    pub connections: u32,
    /// How many of them one client has.
    pub connections_per_client: u32,
    /// How long clients may take.
    pub patience: Patience,
    /// How long answers may go on when the proxy ends.
    pub grace: Duration,
}

/// Serves until `end` is true, and then until all answers that are under way have gone, or the grace is over.
pub async fn serve<F: Fetch>(
    listeners: Vec<std::net::TcpListener>,
    proxy: Arc<Proxy<F>>,
    bounds: Bounds,
    mut end: watch::Receiver<bool>,
) -> io::Result<()> {
    let graceful = Arc::new(GracefulShutdown::new());
    let room = Arc::new(Semaphore::new(
        usize::try_from(bounds.connections).unwrap_or(Semaphore::MAX_PERMITS),
    ));
    let server = Server {
        proxy,
        bounds,
        graceful: Arc::clone(&graceful),
        room,
        clients: Clients::new(bounds.connections_per_client),
    };
    let mut accepting = JoinSet::new();
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        accepting.spawn(server.clone().accept(listener));
    }
    // An error is that the sender is gone, which is an end too.
    end.wait_for(|end| *end).await.ok();
    // Listeners are closed first: nobody is let in who would be turned away.
    accepting.shutdown().await;
    drop(server);
    let Ok(graceful) = Arc::try_unwrap(graceful).map_err(drop) else {
        return Ok(());
    };
    // What is not done by then breaks off with this process.
    tokio::time::timeout(bounds.grace, graceful.shutdown())
        .await
        .ok();
    Ok(())
}

struct Server<F> {
    proxy: Arc<Proxy<F>>,
    bounds: Bounds,
    graceful: Arc<GracefulShutdown>,
    room: Arc<Semaphore>,
    clients: Clients,
}

impl<F> Clone for Server<F> {
    fn clone(&self) -> Self {
        Self {
            proxy: Arc::clone(&self.proxy),
            bounds: self.bounds,
            graceful: Arc::clone(&self.graceful),
            room: Arc::clone(&self.room),
            clients: self.clients.clone(),
        }
    }
}

impl<F: Fetch> Server<F> {
    async fn accept(self, listener: TcpListener) {
        loop {
            let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Without a place, the connection closes.
                    if let Some(place) = self.clients.place(peer.ip()) {
                        let connection = Connection::new(peer, self.bounds.patience);
                        self.serve(stream, connection, (room, place));
                    }
                }
                // The client may have gone, or the system be short of something for a while.
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        connection: Arc<Connection>,
        room: (OwnedSemaphorePermit, Place),
    ) {
        // Without it small answers only come later.
        stream.set_nodelay(true).ok();
        let files = Arc::new(Files::default());
        let stream = FileStream::new(stream, Arc::clone(&files));
        let stream = GuardedStream::new(stream, Arc::clone(&connection));
        let proxy = Arc::clone(&self.proxy);
        let service = service_fn(move |request| {
            let (connection, files) = (Arc::clone(&connection), Arc::clone(&files));
            let answer = Arc::clone(&proxy).answer(connection, files, request);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // The guarded stream has its own.
            .header_read_timeout(None)
            .half_close(false)
            // Pieces of files need it.
            .writev(true)
            .max_buf_size(2 * MOST_HEAD_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(Duration::from_secs(20)))
            .keep_alive_timeout(Duration::from_secs(20))
            .max_concurrent_streams(100)
            .max_header_list_size(u32::try_from(MOST_HEAD_BYTES).unwrap_or(u32::MAX));
        let serving = builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        let serving = self.graceful.watch(serving);
        tokio::spawn(async move {
            // A connection ends with an error whenever its client just leaves.
            serving.await.ok();
            drop(room);
        });
    }
}
