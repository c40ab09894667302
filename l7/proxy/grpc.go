package proxy

import "github.com/millrace/millrace/semantics"

// callStatus returns the status of HTTP that the failure of a gRPC call counts as, which has status 200 and says in grpc-status how
// it went; 0 is no failure of the backend. UNAVAILABLE is 503; UNKNOWN, INTERNAL and DATA_LOSS are 500. Unlike Envoy, DEADLINE_EXCEEDED and
// UNIMPLEMENTED are none: a client could have backends ejected by them.
func callStatus(fields []semantics.Field) int {
	for i := range fields {
		if fields[i].Name != "grpc-status" {
			continue
		}
		switch fields[i].Value {
		case "14":
			return 503
		case "2", "13", "15":
			return 500
		}
		return 0
	}
	return 0
}

// retryCall begins another attempt of a gRPC call whose response has only trailers, where the rule names the status that it counts as. A call
// that failed before its first message has not been committed (gRPC proposal A6). Since all calls are POST, the rule alone decides.
func (x *exchange) retryCall(m *semantics.Message) bool {
	if m.Status != 200 {
		return false
	}
	x.call = callStatus(m.Fields)
	return x.call != 0 && x.retryStatus(x.call, errCallFailed)
}
