"""Users with passwords, set by an administrator's Kafka client."""

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

TIMEOUT_S = 20.0
ITERATIONS = 4096


def set_password(
    admin: AdminClient, name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
) -> None:
    """Create the user, or change its password."""
    change = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, ITERATIONS), password.encode())
    admin.alter_user_scram_credentials([change])[name].result(TIMEOUT_S)
