import Foundation

/// One line that the driver sends: what is to be done, and with what.
struct Request: Decodable, Sendable {
    struct Intent: Decodable, Sendable {
        let path: String
        let access: String
        let options: [String]?
    }

    let id: Int
    let op: String
    /// What the presentation, pool, subscription or presenter is called from now on.
    let key: String?
    let group: String?
    let directory: String?
    let name: String?
    let legacy: String?
    let path: String?
    let text: String?
    let model: String?
    let token: String?
    let tables: [String]?

    // Of a coordinated access
    let intents: [Intent]?
    let coordinator: String?
    let purpose: String?
    let presenter: String?
    let deadline: Double?
    let action: String?
    let isBlocking: Bool?
    let inner: [Request]?

    /// How long an answer or a callback is held back: a stimulus for interleavings, nothing waits for it.
    let milliseconds: Int?
    /// Which callbacks throw.
    let fails: [String]?

    static func read(_ line: String) throws -> Request { try JSONDecoder().decode(Request.self, from: Data(line.utf8)) }

    /// Throws when the line lacks a member that its operation needs.
    func need<Value>(_ value: Value?, _ member: String) throws -> Value {
        guard let value else { throw Complaint(message: "\(op) needs \(member)") }
        return value
    }
}

/// The driver asked for something that makes no sense.
struct Complaint: Error, CustomStringConvertible {
    let message: String
    var description: String { message }
}
