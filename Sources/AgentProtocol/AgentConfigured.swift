/// `configured`: the agent's configuration has changed. Comes once, on connections that were refused what another
/// configuration may grant: it is worth while to ask again.
package enum AgentConfigured {
    package static let type = "configured"

    /// Errors that another configuration may not have.
    package static let codes: Set<String> = ["unknown_store", "not_permitted"]
}
