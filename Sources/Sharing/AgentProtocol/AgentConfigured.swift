/// The event `configured`: the agent's configuration has changed. The agent sends it once, on connections on which it
/// refused something that another configuration may grant. The client can then ask again.
package enum AgentConfigured {
    package static let type = "configured"

    /// The error codes that may not recur under another configuration.
    package static let codes: Set<String> = ["unknown_store", "not_permitted"]
}
