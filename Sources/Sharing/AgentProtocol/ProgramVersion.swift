/// The version of groupstore: of both programs, the agent, and the packages that script/package makes of them.
///
/// The Python client has its own copy in Clients/python/groupstore/_version.py. A test compares the two with the
/// changelog and the samples.
package enum ProgramVersion {
    package static let current = "0.1.0"
}
