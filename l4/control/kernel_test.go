package control

import (
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/flowmodel"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// kernelFlows makes every world forward established connections by a flowmodel.Kernel, after two packets.
var kernelFlows = os.Getenv("MILLRACE_KERNEL_FLOWS") != ""

// openKernel replaces the handler by one that gives connections to a kernel.
func (w *world) openKernel() {
	o := handlerOptions(w.g.cfg, 0)
	o.EnterAfter = 1
	w.h = datapath.New(o, &w.g.snap)
	w.h.ResolveClients(w.g.askForClients)
	if w.g.peer != nil {
		w.h.SyncChanges()
	}
	w.g.handlers[0] = w.h
	w.withKernel(1024)
	w.t.Cleanup(func() {
		if err := w.kernel.Misuse(); err != nil {
			w.t.Error(err)
		}
		if err := w.h.Audit(); err != nil {
			w.t.Error(err)
		}
	})
}

// withKernel gives the handler of the world a kernel for so many connections.
func (w *world) withKernel(slots int) {
	w.kernel = flowmodel.New()
	w.toFlush = w.kernel.Loop(slots, nil)
	w.h.SetForwarder(w.toFlush)
}

// runKernel is run with a kernel before the loop.
func (w *world) runKernel(b *packet.Batch) {
	w.t.Helper()
	w.h.TakeSnapshot(w.now) // as the control side has it do after each change
	if w.now.Sub(w.swept) >= time.Second {
		w.swept = w.now
		w.h.Tick(w.now) // a loop sweeps in the meantime
	}
	w.describe(b)
	rest, at := packet.NewBatch(w.arena, b.Len()), []int(nil)
	chained := false
	for i := range b.D {
		d := &b.D[i]
		more := d.Flags.Has(packet.FlagMore)
		if !chained && !more && !d.Flags.Has(packet.FlagOffload) {
			if out, v := w.kernel.Packet(w.now, d.Port, b.Bytes(i)); v == flowmodel.Forwarded {
				d.Verdict, d.Port = packet.Forward, out
				forwardedByKernel++
				continue
			}
		}
		chained = more
		rest.Append(*d)
		at = append(at, i)
	}
	w.h.Handle(w.now, rest)
	for i, to := range at {
		b.D[to] = rest.D[i]
	}
	_ = w.toFlush.Flush(w.now)
}

// scenarios are tests that have to pass whoever forwards: what each expects of a packet that is sent through the world holds
// with a kernel before the loop.
var scenarios = []func(*testing.T){
	TestAConnectionStaysWithItsBackendAndPort, TestIdleConnectionsAreForgotten, TestAReplyKeepsAConnectionAlive,
	TestANewSYNAfterTheEndStartsAnew, TestRepliesGoWhereTheClientsPacketsCameFrom, TestTwoClientsOnOnePortDoNotMeet,
	TestSourcePortsRunOutForNewConnectionsOnly, TestAClientPortLeadsToABackendOnce, TestBackendsAreClientsToo,
	TestHopsDecideWhetherAPacketLeaves, TestPacketsAreRewrittenBothWays, TestThereAndBackIsTheSamePacket, TestAWrongChecksumStaysWrong,
	TestAUDPDatagramWithoutChecksumKeepsNone, TestAUDPChecksumOfZeroIsSentAsOnes, TestPaddingIsKept,
	TestForgedSegmentsChangeNothing, TestOnlyAnExactRSTEndsAConnection, TestAForgedHandshakeConfirmsNothing, TestTheStatesOfAClose,
	TestTheEdgesOfTheWindows, TestAnOverrunOfTheWindowIsForgiven, TestAWindowDoesNotGrowForEver, TestASYNDoesNotProlongAConnection,
	TestOnlyASYNReplacesAClosedConnection, TestEndsThatHaveForgottenAConnectionOpenItAnew, TestWhatNoSYNOpensStaysAsItIs,
	TestFragmentsFollowTheirFirstBothWays, TestALaterFragmentRefreshesNothing, TestPacketsChangeTheirTagOnTheWay,
	TestOptionsAndExtensionHeadersPass, TestErrorsAboutRepliesGoToTheBackend, TestErrorsAboutRequestsGoToTheClient,
	TestForgedErrorsAreDroppedAndChangeNothing, TestErrorsAboutExpiredConnectionsAreDropped, TestAPacketThatDoesNotFitIsAnsweredOnBothSides,
	TestTheLastHopIsAnswered, TestAConnectionWithoutItsBackendIsReset, TestBothEndsOfADiscardedConnectionAreReset,
	TestConnectionsAreResetAFewAtATime, TestIdleConfirmedConnectionsMakeRoom,
	TestAFloodLeavesConfirmedConnections, TestShorterTimeoutsDoNotConfuseWhatIsIdle, TestEveryConnectionIsListedOnce,
	TestAListedConnectionSaysWhatTheBackendSees, TestADrainingBackendKeepsItsConnectionsUntilTheDeadline,
	TestADrainedBackendIsInactiveWhenItsLastConnectionHasEnded, TestAReloadKeepsEveryConnection, TestAReloadDropsRemovedBackendsWhenToldTo,
	TestARemovedServiceServesOnlyItsConnections, TestTheSourceMayChange, TestASYNLeavesADeadBackend, TestUDPLeavesADeadBackend,
	TestCountersAddUp, TestAnAddressMovesBetweenServices, TestOpenConnectionsAreLookedAtWhenListsChange, TestMarksOfListsMayWrap,
	TestAClientIsHeldToItsPacketsPerSecond, TestLimitsChangeWithAReload, TestEveryPortOfARangeLeadsWhereItShould,
	TestAReloadOfRangesKeepsEveryConnection, TestTheConnectionIDWinsOverTheTable, TestABackendsPacketPicksItsConnectionUp,
	TestPortsAreReclaimedInOrder, TestOnlyPortsOfBackendsInTimeWaitRest, TestThePortOfAResetConnectionDoesNotRest,
	TestANumberIsGivenAgainAsNew, TestALoopReportsWhatItHolds,
}

func TestTheScenariosHoldWithAKernel(t *testing.T) {
	if kernelFlows {
		t.Skip("all tests run with a kernel: MILLRACE_KERNEL_FLOWS is set")
	}
	kernelFlows = true
	defer func() { kernelFlows = false }()
	forwardedByKernel = 0
	for _, scenario := range scenarios {
		name := runtime.FuncForPC(reflect.ValueOf(scenario).Pointer()).Name()
		t.Run(name[strings.LastIndex(name, ".")+1:], scenario)
	}
	if forwardedByKernel < 1000 {
		t.Errorf("the kernel has forwarded %d packets only", forwardedByKernel)
	}
}

// forwardedByKernel counts the packets that kernels of all worlds have forwarded.
var forwardedByKernel int
