// Package side defines what the two sides of an exchange have in common, whatever version of HTTP each of them speaks.
//
// A side is a connection of a client or to a backend. The owner of the connection sends by the methods of a Stream, and gets what
// the peer sends as an Event:
//
//	client <-> Stream, Event <-> exchange <-> Stream, Event <-> backend
//
// The methods of a Stream report no events. So nothing that the owner does is interrupted by something else that it has to do: what
// follows from a call is an event that comes once the loop calls the side again.
//
// Packages h1side, h2side and h3side implement sides. Package proxy owns them.
package side
