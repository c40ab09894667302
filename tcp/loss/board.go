// Package loss keeps what a TCP sender has in flight: what was sent and when, what has arrived, what is
// lost and to be sent again, and when to stop waiting.
//
// A Board joins the retransmission timer (RFC 6298), the SACK scoreboard (RFC 6675; NewReno's duplicate
// ACKs, RFC 6582, where the peer has no SACK), loss by time and tail loss probes (RACK-TLP, RFC 8985),
// proportional rate reduction (RFC 6937), the undoing of what was no loss (DSACK, RFC 3708; timestamps,
// RFC 3522 and 4015; F-RTO, RFC 5682) and delivery rate samples for congestion control (package tcp/cc).
//
// It is pure, and knows no segments: sequence ranges go in as they are sent (Sent, Resent), ACKs come
// back (Ack), and Lost, Probe and Timer say what to do. Sequence numbers here cover SYN and FIN.
package loss
