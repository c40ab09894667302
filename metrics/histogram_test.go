package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func TestEveryValueLiesInItsBucketAndBucketsTouch(t *testing.T) {
	next := uint64(0)
	for i := range buckets {
		low, width := bucketStart(i)
		if low != next {
			t.Fatalf("bucket %d starts at %d, the one before ended at %d", i, low, next)
		}
		if bucketOf(low) != i || bucketOf(low+width-1) != i {
			t.Fatalf("bucket %d has %d..%d, which count in %d and %d", i, low, low+width-1, bucketOf(low), bucketOf(low+width-1))
		}
		next = low + width
	}
	if next != 0 {
		t.Errorf("the last bucket ends before %d, want 2^64", next)
	}
}

// shapes are ways to draw values: each stresses other buckets.
var shapes = map[string]func(r *rand.Rand) uint64{
	"small numbers":        func(r *rand.Rand) uint64 { return r.Uint64N(40) },
	"uniform":              func(r *rand.Rand) uint64 { return r.Uint64N(1_000_000) },
	"long tail":            func(r *rand.Rand) uint64 { return uint64(math.Exp(r.ExpFloat64() * 5)) },
	"all magnitudes":       func(r *rand.Rand) uint64 { return r.Uint64() >> r.UintN(64) },
	"two far-apart values": func(r *rand.Rand) uint64 { return []uint64{7, 1 << 40}[r.UintN(2)] },
	"always the same":      func(*rand.Rand) uint64 { return 4242 },
}

func TestQuantilesAreWithinOneSixtyFourthOfTheExactOnes(t *testing.T) {
	for name, draw := range shapes {
		for _, n := range []int{1, 2, 10, 999, 5000} {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			var h Histogram
			exact := make([]uint64, n)
			for i := range exact {
				exact[i] = draw(r)
				h.Record(exact[i])
			}
			slices.Sort(exact)
			var d Distribution
			h.AddTo(&d)
			for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
				want := exact[max(int(math.Ceil(q*float64(n))), 1)-1]
				got := d.Quantile(q)
				if diff := math.Abs(float64(got) - float64(want)); diff > float64(want)/64 {
					t.Errorf("%s, %d values: quantile %v is %d, exact %d", name, n, q, got, want)
				}
			}
			if d.Max() != exact[n-1] || d.Quantile(1) != exact[n-1] || d.Count() != uint64(n) {
				t.Errorf("%s: max %d of %d, want %d of %d", name, d.Max(), d.Count(), exact[n-1], n)
			}
		}
	}
}

func TestMergingEqualsRecordingInOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var a, b, both Histogram
	for i := range 3000 {
		v := r.Uint64() >> r.UintN(64)
		both.Record(v)
		if i%3 == 0 {
			a.Record(v)
		} else {
			b.Record(v)
		}
	}
	var da, db, want Distribution
	a.AddTo(&da)
	b.AddTo(&db)
	both.AddTo(&want)
	da.Merge(&db)
	if da != want {
		t.Error("merged distribution differs from the one recorded in one piece")
	}
}

func TestRecordNEqualsRecordNTimes(t *testing.T) {
	var one, many Histogram
	one.RecordN(300, 4)
	for range 4 {
		many.Record(300)
	}
	var a, b Distribution
	one.AddTo(&a)
	many.AddTo(&b)
	if a != b || a.Mean() != 300 || a.Sum() != 1200 {
		t.Errorf("mean %v sum %d, want 300 and 1200", a.Mean(), a.Sum())
	}
}

func TestAnEmptyDistributionHasZeroes(t *testing.T) {
	var d Distribution
	if d.Quantile(0.5) != 0 || d.Mean() != 0 || d.Max() != 0 || d.Count() != 0 {
		t.Errorf("empty distribution: %d %v %d %d", d.Quantile(0.5), d.Mean(), d.Max(), d.Count())
	}
}

func TestAReaderMaySnapshotWhileTheOwnerRecords(t *testing.T) {
	var h Histogram
	var wg sync.WaitGroup
	const n = 20_000
	wg.Go(func() {
		for i := range uint64(n) {
			h.Record(i)
		}
	})
	for range 20 {
		var d Distribution
		h.AddTo(&d)
		if d.Count() > n {
			t.Fatalf("%d values of %d", d.Count(), n)
		}
	}
	wg.Wait()
	var d Distribution
	h.AddTo(&d)
	if d.Count() != n || d.Sum() != n*(n-1)/2 {
		t.Errorf("count %d sum %d, want %d and %d", d.Count(), d.Sum(), n, n*(n-1)/2)
	}
}
