package main

// suites are all there are, in the order of -list.
var suites = []Suite{
	packetIO,
	l4,
	tables,
	literals,
	kern,
	transport,
}

func suiteNamed(name string) (Suite, bool) {
	for _, s := range suites {
		if s.Name == name {
			return s, true
		}
	}
	return Suite{}, false
}
