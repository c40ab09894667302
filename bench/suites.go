package main

import "github.com/millrace/millrace/bench/harness"

// suites are all there are, in the order of -list.
var suites = []harness.Suite{
	packetIO,
	dpdkSuite,
	vhostSuite,
	expressionSuite,
	l4,
	l4Established,
	tables,
	crypto,
	literals,
	filterSuite,
	inspectionSuite,
	inspectionGatewaySuite,
	huntSuite,
	kern,
	transport,
	rdmaSuite,
	sessions,
	gatewaySuite,
	shimSuite,
	takeover,
	collectiveSuite,
}

func suiteNamed(name string) (harness.Suite, bool) {
	for _, s := range suites {
		if s.Name == name {
			return s, true
		}
	}
	return harness.Suite{}, false
}

// gate is a promise as the suites write it: the median of a metric of a contestant, or of its ratios
// against another's, compared (op is ">=", ">" or "<=") with a bound.
func gate(contestant string, metric harness.Metric, against, op string, bound float64) harness.Gate {
	return harness.Gate{Contestant: contestant, Metric: metric, Against: against, Op: op, Bound: bound}
}
