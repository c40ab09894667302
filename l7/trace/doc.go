// Package trace continues and begins traces of requests (W3C Trace Context) and sends their spans to a
// collector by OTLP over HTTP, in JSON.
//
// A loop decides by a random number, or by the parent's decision, whether a request has spans. Those of
// one that has are made when it ends, wait in a bounded queue, and are sent by a goroutine: what does
// not fit the queue, or what the collector does not take, is dropped and counted.
package trace
