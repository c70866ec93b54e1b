"""How long a request may take to arrive, and pauses in reading."""

from tidemill.servers.kafka.upload_clock import UPLOAD_BYTES_PER_S_MIN, UPLOAD_GRACE_S, UploadClock


def test_a_request_must_arrive_within_the_grace_time_and_the_time_of_its_size() -> None:
    clock = UploadClock()
    clock.begin(10.0)
    clock.arrived(10.0, 4, 3 * UPLOAD_BYTES_PER_S_MIN)
    clock.arrived(60.0, 8, 3 * UPLOAD_BYTES_PER_S_MIN)
    assert not clock.is_over(10.0 + UPLOAD_GRACE_S + 3.0)
    assert clock.is_over(10.1 + UPLOAD_GRACE_S + 3.0)
    assert clock.seconds(60.0) == 50.0


def test_a_complete_request_has_no_deadline() -> None:
    clock = UploadClock()
    clock.arrived(10.0, 4, 8)
    clock.completed(20.0)
    assert not clock.is_over(1e9)
    assert clock.seconds(25.0) == 5.0
    clock.arrived(30.0, 0, 0)
    assert not clock.is_over(1e9), "nothing has arrived of another one"


def test_a_pause_in_reading_does_not_count() -> None:
    clock = UploadClock()
    clock.begin(10.0)
    clock.arrived(10.0, 4, 0)
    clock.pause(15.0)
    assert not clock.is_over(1e9)
    assert clock.seconds(1e9) == 5.0
    clock.resume(115.0)
    assert not clock.is_paused
    assert clock.seconds(117.0) == 7.0
    assert not clock.is_over(1e9), "the next part sets another deadline"
    clock.arrived(118.0, 8, 0)
    assert clock.is_over(118.1 + UPLOAD_GRACE_S)
