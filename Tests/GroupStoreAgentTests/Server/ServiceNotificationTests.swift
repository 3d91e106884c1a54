import CLinux
import Glibc
import GroupStoreAgent
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The service manager's end: a datagram socket.
@Suite struct ServiceNotificationTests {
    private let scratch: TemporaryDirectory

    init() throws { scratch = try TemporaryDirectory() }

    private func bound(to path: FilePath) throws -> Descriptor {
        let socket = Descriptor(owning: try retrying("socket") { gs_socket_datagram() })
        let raw = socket.raw
        try retrying("bind") { path.withPlatformString { gs_socket_bind(raw, $0) } }
        return socket
    }

    private func message(on socket: borrowing Descriptor) -> String? {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = recv(socket.raw, &buffer, buffer.count, CInt(MSG_DONTWAIT))
        return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
    }

    @Test(arguments: [false, true])
    func reportsEachStateToTheManager(_ isAbstract: Bool) throws {
        let name = scratch.path.appending("notify")
        let path = isAbstract ? FilePath("@" + name.string.dropFirst()) : name
        let manager = try bound(to: path)
        let notification = ServiceNotification(environment: ["NOTIFY_SOCKET": path.string])
        notification.ready("serving\n2 groups")
        #expect(message(on: manager) == "READY=1\nSTATUS=serving 2 groups")
        notification.reloading()
        let reloading = (message(on: manager) ?? "").split(separator: "\n")
        #expect(reloading.first == "RELOADING=1")
        #expect(reloading.last?.hasPrefix("MONOTONIC_USEC=") == true)
        #expect(Int64(reloading.last?.dropFirst(15) ?? "").map { $0 > 0 } == true)
        notification.stopping()
        #expect(message(on: manager)?.hasPrefix("STOPPING=1") == true)
        #expect(message(on: manager) == nil)
    }

    @Test func sendsNothingWithoutAManager() throws {
        let manager = try bound(to: scratch.path.appending("notify"))
        ServiceNotification(environment: [:]).ready("alone")
        ServiceNotification(environment: ["NOTIFY_SOCKET": "relative"]).ready("alone")
        ServiceNotification(environment: ["NOTIFY_SOCKET": "/nonexistent/socket"]).ready("alone")
        #expect(message(on: manager) == nil)
    }
}
