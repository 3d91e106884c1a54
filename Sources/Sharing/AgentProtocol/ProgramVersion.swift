/// The version of groupstore: of both programs, the agent, and the packages that script/package makes of them.
///
/// It is written here, and in Clients/python/groupstore/_version.py, which is released by itself too. A test compares the
/// two with the changelog and the samples.
package enum ProgramVersion {
    package static let current = "0.1.0"
}
