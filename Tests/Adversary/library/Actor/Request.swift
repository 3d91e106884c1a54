import Foundation

/// One line that the driver sends: an operation and its arguments.
struct Request: Decodable, Sendable {
    struct Intent: Decodable, Sendable {
        let path: String
        let access: String
        let options: [String]?
    }

    let id: Int
    let op: String
    /// The new name of the presentation, pool, subscription or presenter.
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

    // Members for a coordinated access.
    let intents: [Intent]?
    let coordinator: String?
    let purpose: String?
    let presenter: String?
    let deadline: Double?
    let action: String?
    let isBlocking: Bool?
    let inner: [Request]?

    /// The delay of an answer or a callback. It provokes interleavings; nothing waits for it.
    let milliseconds: Int?
    /// The callbacks that throw.
    let fails: [String]?

    static func read(_ line: String) throws -> Request { try JSONDecoder().decode(Request.self, from: Data(line.utf8)) }

    /// Throws if the line lacks a member that its operation needs.
    func need<Value>(_ value: Value?, _ member: String) throws -> Value {
        guard let value else { throw Complaint(message: "\(op) needs \(member)") }
        return value
    }
}

/// The driver's request makes no sense.
struct Complaint: Error, CustomStringConvertible {
    let message: String
    var description: String { message }
}
