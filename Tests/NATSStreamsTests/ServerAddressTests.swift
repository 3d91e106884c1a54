import NATSStreams
import Testing

@Suite struct ServerAddressTests {
    @Test(arguments: [
        ("127.0.0.1", "nats://127.0.0.1:4222", true), ("localhost:4000", "nats://localhost:4000", true),
        ("tls://broker.example.com", "tls://broker.example.com:4222", false),
        ("nats://[::1]:4222", "nats://[::1]:4222", true), ("nats://10.0.0.1:4222/", "nats://10.0.0.1:4222", false),
        ("127.example.com", "nats://127.example.com:4222", false),
    ])
    func parsesAnAddress(text: String, description: String, isLoopback: Bool) throws {
        let address = try ServerAddress(text)
        #expect(address.description == description)
        #expect(address.isLoopback == isLoopback)
    }

    @Test(arguments: [
        "", "nats://", "http://broker", "nats://broker:0", "nats://broker:70000", "nats://::1", "broker:1:2",
        "nats://bro\u{1B}ker", "nats://[::1", "nats://[::1]4222",
    ])
    func rejectsAMalformedAddress(text: String) {
        #expect { try ServerAddress(text) } throws: { error in
            (error as? NATSError)?.code == .badAddress
        }
    }

    @Test func rejectsASecretInAnAddressWithoutRepeatingIt() {
        #expect { try ServerAddress("nats://relay:hunter2@broker") } throws: { error in
            guard let error = error as? NATSError else { return false }
            return error.code == .badAddress && !error.messageWithRemedy.contains("hunter2")
        }
    }
}
