use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// What comes of some work, unless it is stopped before. None: it was stopped.
pub(crate) async fn unless<R>(
    stopped: impl Future<Output = ()>,
    work: impl Future<Output = R>,
) -> Option<R> {
    let (mut stopped, mut work) = (pin!(stopped), pin!(work));
    poll_fn(|context| {
        if stopped.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}
