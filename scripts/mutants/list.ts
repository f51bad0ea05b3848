/**
 * The faults that are put into the built core, one at a time. Each is one that somebody could have written; its name says
 * what goes wrong. A text is of the build's JavaScript and stands there once.
 */
import type { Mutant } from './mutant.ts'

type Row = readonly [law: number, name: string, find: string, put: string]

const of = (file: string, rows: readonly Row[]): Mutant[] => rows.map(([law, name, find, put]) => ({ law, name, file, find, put }))

export const MUTANTS: readonly Mutant[] = [
  ...of('core/call', [
    [3, 'the epoch of a result is not checked', 'from.epoch !== must(d.core.programs, call.program).epoch', 'false'],
    [3, 'the attempt of a result is not checked', 'from.attempt !== call.attempt', 'false'],
    [3, 'the run of a result is not checked', 'from.run !== call.preemptions', 'false'],
    [15, 'the reign of a result is not checked', ': from.reign !== d.core.reign ?', ': false ?'],
    [15, 'progress of an old reign is charged', 'if (input.reign !== d.core.reign)\n        return ignore(d, \'progress\'', 'if (false)\n        return ignore(d, \'progress\''],
    [1, 'a late result of a call that is over is accepted', "call.stage.kind !== 'running' && call.stage.kind !== 'pausing' ?", 'false ?'],
    [1, 'any engine may speak for a call', 'call.stage.engine !== from.engine ?', 'false ?'],
    [0, 'a program whose last call failed after one that was final counts as failed', '!program.declared && !program.final && program.openCalls', '!program.declared && program.openCalls'],
    [14, 'attempts have no limit', 'call.attempt >= d.core.config.attemptsMax', 'false'],
    [2, 'a follower in its thread outlives the call it waits for', '    failFollowers(d, call.thread);\n    const program = must(d.core.programs, call.program);\n    const state', '    const program = must(d.core.programs, call.program);\n    const state'],
    [14, 'a detached call waits without a timer', '    setTimer(d, `detached:${call.id}`', '    if (false) setTimer(d, `detached:${call.id}`'],
    [14, 'the timer of a call that was given up is left', "kind: 'call.cancelled', call: call.id, why }));\n    clearTimersOf(d, call.id);", "kind: 'call.cancelled', call: call.id, why }));"],
    [5, 'KV that was only half recomputed is kept after a pause', 'input.report.recomputedTokens >= call.recomputeDue', 'true'],
    [5, 'a State that was half recomputed stays when its attempt fails', 'if (heldTokens < spanTokens(state))', 'if (false)'],
    [8, 'a thread adopts a prefix of another conversation', '.find((state) => state.record === matched.record)', '.find((state) => state.record !== null)'],
    [14, 'the timer of a prefix is left when it is adopted', '    clearTimer(d, `retire:${left.id}`);\n', ''],
    [0, 'a call too large for every engine waits for ever', 'if (!fitsSomewhere(d, { ...call, promptTokens: input.promptTokens }))', 'if (false)'],
    [0, 'who fits nowhere since an engine came back smaller is not told', 'isInLine(call) && !fitsSomewhere(d, call)', 'false'],
    [0, 'a refusal of the engine is tried again', '    if (input.retryable)\n', '    if (true)\n'],
  ]),
  ...of('core/apply-call', [
    [12, 'a retry resets the service of its call', "        case 'call.retried': {\n            const call = must(core.calls, fact.call);\n            waste(core, call);", "        case 'call.retried': {\n            const call = must(core.calls, fact.call);\n            call.ledger = emptyLedger();"],
    [12, 'a retry is charged twice', '    call.attempt = fact.attempt;\n    call.attemptService = NO_LEDGER;\n    call.startedUs', '    call.attempt = fact.attempt;\n    call.startedUs'],
    [12, 'a doubled report is charged twice', 'const grown = ledgerGrowth(call.attemptService, report.service);', 'const grown = report.service;'],
    [12, 'a tenant is charged and its program is not', '    program.ledger = addLedger(program.ledger, grown);\n', ''],
    [12, 'wasted service of a failed call is forgotten', "        case 'call.failed': {\n            const call = must(core.calls, fact.call);\n            waste(core, call);", "        case 'call.failed': {\n            const call = must(core.calls, fact.call);"],
    [5, 'spans are not cut back to what the call continues', 'cutSpans(core, state, fact.baseTokens);', ''],
    [5, 'what a cancelled call fed is left in its State', "    state.tail = { prefilled: 0, decoded: 0 };\n    if (active)\n        idle", '    if (active)\n        idle'],
    [5, 'what is fed again counts twice in the State', '    if (fact.recomputeTokens > 0)\n        state.tail = { prefilled: 0, decoded: 0 };\n', ''],
    [1, 'a call that ends stays on its engine', '    engine.running.delete(call.id);\n', ''],
    [2, 'a call that is started stays in the queue', '        leaveLine(core, call);\n        dropReservation', '        dropReservation'],
    [2, 'the next call of a thread starts though the one before is open', 'else if (thread.active === null)\n        thread.active = fact.call;\n    else\n        thread.waiting = [...thread.waiting, fact.call];', 'else\n        thread.active = fact.call;'],
    [2, 'a thread forgets who waits in it', 'thread.active = thread.waiting[0] ?? null;', 'thread.active = null;'],
    [14, 'open calls are not counted down', '        core.openCalls -= 1;\n', ''],
    [7, 'a tool call that was shown is not known afterwards', 'core.toolCalls.set(`${tenant}/${id}`, { call: call.id, answeredBy: null })', 'void id'],
    [0, 'what was paid ahead is never given back', "    if (!starts && stage.kind !== 'pausing')\n        prepay(core, call, 0);\n", ''],
  ]),
  ...of('core/kv/apply-kv', [
    [5, 'an offload frees the source before it is published', "            return true;\n        case 'kv.onboard.begun'", "            releaseDevice(core, must(core.states, fact.state));\n            return true;\n        case 'kv.onboard.begun'"],
    [5, 'the image is dropped when its copy in begins', '    if (fact.forCall === null)\n        return;', '    releaseHost(core, must(core.states, fact.state));\n    if (fact.forCall === null)\n        return;'],
    [11, 'a move that failed keeps its reservation', 'core.host.reservedBytes -= move.reservedBytes;', "if (core.states.get(move.state)?.owner.kind !== 'thread') core.host.reservedBytes -= move.reservedBytes;"],
    [11, 'device memory is not reserved for a copy in', 'engine.reservedGranules += move.reservedGranules;', ''],
    [11, 'both copies are kept after a copy in', '    releaseHost(core, state);\n    takeDevice(core, state, { engine: move.engine', '    takeDevice(core, state, { engine: move.engine'],
    [5, 'a corrupt image is kept for the next time', "    if (fact.sourceLost && move.from === 'host')\n        releaseHost(core, state);\n", ''],
    [9, 'an adopted prefix stays listed in its session', '            session.states = session.states.filter((id) => id !== fact.state);\n            state.owner', '            state.owner'],
    [9, 'a settled State stays with its thread', 'thread.state = null;', ';'],
    [9, 'a session does not learn of the prefix it is left', 'sessionOf(core, fact.owner.session, state.tenant).states.push(state.id);', ';'],
    [11, 'Segments of a forgotten State stay', '    cutSpans(core, state, 0);\n', ''],
  ]),
  ...of('core/kv/memory', [
    [11, 'a Segment reference is not dropped', 'segment.refs -= 1;', ''],
    [11, 'a fork does not count its references', 'must(core.segments, segment).refs += 1;', ';'],
    [11, 'memory that is released is not given back', 'engine.ownedGranules -= state.device.granules;', ''],
    [14, 'an empty session is kept', 'core.sessions.delete(id);', ';'],
    [0, 'an idle State is not found when memory is wanted', 'set.add(item);', ';'],
  ]),
  ...of('core/kv/kv', [
    [5, 'of a State that an engine has in part, all is copied', 'Math.min(stateTokens(state), state.device?.tokens ?? 0)', 'stateTokens(state)'],
    [11, 'host room is promised that is not there', 'neededBytes <= d.core.host.totalBytes;\n    const dropped = can ? imagesInTheWay(d, neededBytes) : null;', 'neededBytes <= d.core.host.totalBytes;\n    const dropped = can ? [] : null;'],
    [11, 'an image that is larger than its room is taken', "if (move.to === 'host' && input.bytes > move.reservedBytes)", 'if (false)'],
    [9, 'a copy is published for a program that was cancelled', "if (state.owner.kind === 'nobody')\n        return failMove(d, move, 'nobody owns it any more', false);", ''],
    [5, 'a copy that holds what came to nothing is published', 'if (move.tokens > stateTokens(state) || isGivenUp(d, state))', 'if (false)'],
    [15, 'a copy of an old reign is published', ': input.reign !== d.core.reign ?', ': false ?'],
    [5, 'any engine may report a copy', ': input.engine !== move.engine ?', ': false ?'],
    [9, 'a State is freed under a transfer', "    if (state.residence.kind === 'moving')\n        return;\n    if (state.device !== null)\n        discardDevice(d, state, 'its program has ended');", "    if (state.device !== null)\n        discardDevice(d, state, 'its program has ended');"],
    [9, 'bytes of a cancelled program are kept until somebody wants room', "if (state.owner.kind === 'nobody')\n        return releaseState(d, state.id);", ''],
    [0, 'who waited for a copy that failed is not tried again', '    if (call !== null)\n        readyIfDue(d, call);', ''],
    [14, 'the timer of a prefix that goes is left', '    clearTimer(d, `reconsider:${id}`);\n    clearTimer(d, `retire:${id}`);', '    clearTimer(d, `reconsider:${id}`);'],
    [14, 'a session keeps every prefix', 'for (const old of states.slice(0, Math.max(0, states.length - d.core.config.sessionStatesMax)))', 'for (const old of [])'],
    [14, 'a prefix has no retention', '    setTimer(d, `retire:${id}`', '    if (false) setTimer(d, `retire:${id}`'],
  ]),
  ...of('core/schedule', [
    [5, 'more KV is claimed to be on the device than is', 'Math.min(state?.device?.tokens ?? 0, fedTokens)', 'fedTokens'],
    [4, 'a resumed call is not told what it has shown already', 'forcedTokens: call.outputTokens', 'forcedTokens: 0'],
    [11, 'too little memory is reserved for a copy in', "granulesBy(d.core, call, state, engine, 'onboarded'),", '0,'],
  ]),
  ...of('core/ready', [
    [2, 'READY ignores the declared parents', 'if (!areParentsCommitted(d.core, call))', 'if (false)'],
  ]),
  ...of('core/graph/graph-follow', [
    [2, 'a join that has fired fires again', "node.stage.kind === 'open' && must(d.core.programs, program).stage.kind === 'open' ? verdictOn", 'true ? verdictOn'],
    [6, 'siblings that a join needs no more run on', "if (node.join?.siblings !== 'cancel')", 'if (true)'],
    [6, 'a node is cancelled and its call runs on', 'endCallOf(d, nodeAt(d, fact.program, fact.node), fact.why, lost);', ''],
    [9, 'a thread that a losing branch ran in keeps its KV', 'endLost(d, lost);', 'lost.clear();'],
    [6, 'a branch that somebody else needs is cancelled too', "if (node.stage.kind !== 'open' || openChildrenOf(graph, node).length > 0)", "if (node.stage.kind !== 'open')"],
  ]),
  ...of('core/graph/join', [
    [2, 'a join of any waits for all', "case 'any': return 1;", "case 'any': return parents;"],
    [2, 'a join counts open parents as committed', 'return committed >= needed ?', 'return committed + open >= needed ?'],
  ]),
  ...of('core/graph/apply-graph', [
    [2, 'a node keeps a call that was given up, and nobody else may be it', 'node.call = null;', ';'],
    [1, 'a node ends twice', "if (node.stage.kind !== 'open')\n        return;", ''],
    [11, 'a fork counts no reference to what it shares', 'shareSpans(core, from, state);', 'state.spans = [...from.spans];'],
    [0, 'service that follows a node is not counted', 'child.afterUs + (child.serviceUs ?? 0)', 'child.afterUs'],
    [2, 'a call that commits leaves its node open', "case 'call.completed': return closeOf(core, fact.call, { kind: 'committed', atUs });", "case 'call.completed': return;"],
  ]),
  ...of('core/graph/graph-check', [
    [2, 'a graph may wait for itself', '?? circle(to)', ''],
    [2, 'a parent may be a call of another program', 'if (theirs.id !== mine.id)', 'if (false)'],
    [14, 'a graph has no limit', '?? tooMany(to)', ''],
  ]),
  ...of('core/claim', [
    [1, 'two calls are one node', 'if (found.call !== null)', 'if (false)'],
    [2, 'a call stands behind one that waits for it', 'return circle ?', 'return false ?'],
  ]),
  ...of('core/cancel', [
    [9, 'a thread that was cancelled keeps its KV', '    quieten(d, id);\n', ''],
  ]),
  ...of('core/effects', [
    [7, 'cancel is silent about effects that remain', "if (effect === 'read' && committed.length === 0)\n        return [];\n    const", 'return [];\n    const'],
    [7, 'a call whose effects were committed is generated again', "stage.kind === 'waiting' || commits.length > 0", "stage.kind === 'waiting'"],
    [7, 'an interrupt carries the mildest effect of its tools', 'Math.max(...names', 'Math.min(...names'],
    [14, 'the timer of a wait is left when its program ends', 'clearTimer(d, `expire:${id}`);', ''],
  ]),
  ...of('core/program', [
    [3, 'cancel leaves the epoch as it was', 'epoch: program.epoch + 1,', 'epoch: program.epoch,'],
    [6, 'cancel leaves its calls in the queue', "    endCalls(d, program, 'its program was cancelled');\n", ''],
    [9, 'cancel leaves its KV', '    endInterrupts(d, program);\n    for (const thread of program.threads)\n        release(d, thread);\n    clearTimer(d, `close:${program.id}`);\n    for', '    endInterrupts(d, program);\n    clearTimer(d, `close:${program.id}`);\n    for'],
    [6, 'cancel does not reach sub-agents', 'if (child.stage.kind === \'open\' || isProvisional(child))', 'if (false)'],
    [14, 'a tenant may have all the programs', 'live < tenantProgramsMax', 'true'],
    [14, 'programs have no limit', 'if (d.core.programs.size < d.core.config.programsMax)', 'if (true)'],
    [14, 'a program that is still open is forgotten', 'id !== spare && children.length === 0', 'id !== spare'],
  ]),
  ...of('core/submit', [
    [8, 'a session that names itself as its parent is below itself', 'if (named === claims.session || (d', 'if ((d'],
    [1, 'a call id is taken a second time', 'if (d.core.calls.has(input.call))', 'if (false)'],
    [7, 'a retry of a committed call generates again', 'interrupt !== undefined && isReplayable(interrupt) ? call : null', 'null'],
    [7, 'what tools did in a turn that ended is asked of them again', "claims.toolResults.length > 0)", 'false)'],
    [1, 'a retry of an open call is a second call', '    if (!isOver(call))\n        return call;\n', '    if (!isOver(call))\n        return null;\n'],
    [14, 'a tenant may have all the calls', 'if (own >= tenantCallsOpenMax &&', 'if (false &&'],
    [14, 'a call that nobody waits for does not give way at its tenant\'s limit', 'if (own >= tenantCallsOpenMax && !giveUpLongestDetached(d, (call) => must(d.core.programs, call.program).tenant === tenant))', 'if (own >= tenantCallsOpenMax)'],
    [8, 'at its limit a tenant takes the place of another one\'s call', 'must(d.core.programs, call.program).tenant === tenant)) {', 'true)) {'],
    [14, 'open calls have no limit', 'if (open < callsOpenMax || ', 'if (true || '],
    [14, 'a call that nobody waits for does not give way', ' || giveUpLongestDetached(d, () => true))', ')'],
    [14, 'the timer of a wait that was answered is left', 'waitUs: d.nowUs - interrupt.startedUs });\n    clearTimer(d, `expire:${interrupt.id}`);', 'waitUs: d.nowUs - interrupt.startedUs });'],
    [7, 'a wait is ended by some of its results', "if (missing.length > 0)", 'if (false)'],
    [8, 'a tool result opens the program of another', "if (named !== null && linked !== null && linked.program !== named)", 'if (false)'],
  ]),
  ...of('core/engine', [
    [15, 'a lower reign is accepted', 'if (input.reign <= d.core.reign)', 'if (false)'],
    [15, 'an engine of an old reign joins', "if (input.reign !== d.core.reign)\n        return ignore(d, 'engineJoined'", "if (false)\n        return ignore(d, 'engineJoined'"],
    [15, 'the loss of an engine in an old reign counts', "if (input.reign !== d.core.reign)\n        return ignore(d, 'engineLost'", "if (false)\n        return ignore(d, 'engineLost'"],
    [5, 'KV of a lost engine is still there', 'if (state.device?.engine === engine.id)', 'if (false)'],
    [5, 'a copy from a lost engine goes on', 'for (const id of [...engine.moves])', 'for (const id of [])'],
    [5, 'an image that does not verify is used', 'if (state.host !== null && !verified.has(state.host.image))', 'if (false)'],
    [0, 'the host tier is not drained to a smaller size', 'if (hostFreeBytes(d.core) >= 0)', 'if (true)'],
  ]),
  ...of('core/kv/inventory', [
    [5, 'KV that is there already is adopted again', "if (state.residence.kind !== 'gone')", 'if (false)'],
    [3, 'KV of an epoch that is over is adopted', 'if (epoch !== null && epoch !== held.epoch)', 'if (false)'],
    [4, 'KV of other tokens is adopted', 'if (held.tokens === 0 || digestAt(core, state, held.tokens) !== held.digest)', 'if (held.tokens === 0)'],
    [11, 'KV is adopted for which there is no room', 'if (granulesOf(engine, held.tokens) > granulesFree(engine))', 'if (false)'],
  ]),
  ...of('core/kv/kv-read', [
    [13, 'KV is kept for a call whose client is gone', "call.stage.kind !== 'detached' && ", ''],
    [11, 'granules are rounded down', 'Math.ceil(tokens / engine.capabilities.memory.granule)', 'Math.floor(tokens / engine.capabilities.memory.granule)'],
  ]),
  ...of('core/asleep/difference', [
    [0, 'a text told again is the first one told', 'return [TOLD, number]', 'return [TOLD, 0]'],
    [0, 'a number that is not whole comes back as a near one', 'Number.isSafeInteger(value - before) && before + (value - before) === value', 'true'],
    [0, 'what is in a record is taken from the one before', "record[key] = valueOf(record[key], value[index + 1], told);", ''],
  ]),
  ...of('core/asleep/asleep', [
    [0, 'who is at work is brought to sleep', '!AT_WORK.has(', 'AT_WORK !== undefined || AT_WORK.has('],
    [14, 'threads of programs asleep are not counted', ' + this.programs.threadsAsleep', ''],
    [14, 'who woke is counted among the threads asleep', 'this.#threadsAsleep -= threads.length;', ''],
    [0, 'who is awake again goes to sleep before who woke earlier', 'for (const first of set)', 'for (const first of [...set].reverse())'],
  ]),
  ...of('core/digests', [
    [8, 'the call of another digest is the retry', "core.calls.get(other)?.digest === digest", 'true'],
    [1, 'a digest displaces others of its number', 'others.length === 0 ? id : [...others, id]', 'id'],
  ]),
  ...of('core/touch', [
    [13, 'who waited for KV that was kept for a call that failed is not looked at', '    if (state !== null)\n        atRest(core, state, touched);', ''],
    [13, 'who waited for what was reserved for a call that left is not looked at', 'if (kept !== null)', 'if (false)'],
    [13, 'room on host that comes free is not noticed', "if (queue.size > 0)\n            touched.models.add(model);", ';'],
  ]),
  ...of('core/dispatch', [
    [11, 'what is kept for a better call is given to a worse one', 'return granulesFree(engine) - better >= needed;', 'return granulesFree(engine) >= needed;'],
    [11, 'sequences are not counted', 'if (!hasSequence && engine.sequencesUsed >= memory.sequences)', 'if (false)'],
    [0, 'an engine runs more calls than it can', 'if (placesOf(engine) <= 0)', 'if (false)'],
    [13, 'running calls that cannot grow wait for each other', 'giveUpWorst(d, call, engine);', ';'],
    [13, 'a ready call waits behind idle KV', '    if (short() > 0)\n        takeIdle(d, call, engine, short, look);\n', ''],
  ]),
  ...of('core/preempt', [
    [0, 'two calls are paused for one', 'if (!engine.capabilities.preempt || engine.pausing.size > 0)', 'if (!engine.capabilities.preempt)'],
    [0, 'preemption has no budget', 'running.preemptions < d.core.config.preemptionsMax', 'true'],
    [0, 'preemption pays even where nothing is gained', 'if (gainUs === null || gainUs < Math.max(1, d.core.config.preemptGainUs))', 'if (gainUs === null)'],
    [0, 'a program that gave way is made to give way again at once', 'if (restsUntilUs > d.nowUs)', 'if (false)'],
  ]),
  ...of('core/queue/slack', [
    [13, 'boosts have no cap', 'if (!hasShare(d, call))', 'if (false)'],
    [13, 'a boost trusts a predictor that drifts', 'if (remaining.drifting)', 'if (false)'],
    [13, 'a boost trusts a guess', 'if (remaining.confidencePpm < boostConfidencePpmMin)', 'if (false)'],
    [13, 'what is late whatever is done pushes others aside', 'if (d.nowUs > dueUs - remaining.lowUs)', 'if (false)'],
  ]),
  ...of('core/queue/aging', [
    [13, 'nobody ages', 'passed ? call.level - 1 : call.level', 'call.level'],
    [13, 'who was passed by nobody goes up too', 'passed ? call.level - 1 : call.level', 'call.level - 1'],
  ]),
  ...of('core/queue/reservations', [
    [13, 'memory stays reserved for a call that runs', 'core.turns.reservations.delete(engine);', ';'],
  ]),
  ...of('core/kv/continuation', [
    [5, 'an image is read by an engine with another key', ' && capabilities.imageKey === imageKey;', ';'],
    [11, 'room is made for a call and not for its longer image', "way === 'onboarded' ? granulesOf(engine, state?.host?.tokens ?? 0) : 0", '0'],
    [0, 'a copy is made though feeding again is quicker', '&& copyUs <= againUs ?', '?'],
    [0, 'a State is fed again though a copy is quicker', 'feedAgain(engine, luggage.byOrigin, call.exactResume).workUs', '-1'],
  ]),
  ...of('core/policy/placement/least-seconds', [
    [0, 'what is waited for in the queue is pressure too', 'lacking + site.growthGranules - running, 0)', 'lacking + site.growthGranules, 0)'],
    [0, 'memory that calls before it wait for counts as free', 'shortOf(site, needed, held > 0, line.granules)', 'shortOf(site, needed, held > 0, 0)'],
    [0, 'calls that wait for the same engine before it count as none', 'Math.max(0, 1 + callsAhead - places)', 'Math.max(0, 1 - places)'],
    [0, 'a full engine has no queue', 'const forPlace = Math.max(0, 1 + callsAhead - places);', 'const forPlace = 0;'],
    [0, 'KV leaves its device for nothing', "(way === 'kept' ? core.config.placementGainUs : 0)", '0'],
    [0, 'a transfer costs nothing', 'transferUs: transferUs(core, luggage, engine, way)', 'transferUs: 0'],
  ]),
  ...of('core/placement', [
    [0, 'a State that goes to another engine is fed again though it could be moved', "if (way === 'moved')", 'if (false)'],
    [0, 'a reserved call goes where nothing is kept for it', 'if (kept !== undefined)', 'if (false)'],
  ]),
  ...of('core/site', [
    [0, 'a lost engine is placed on', "engine.stage === 'joined' && engine.draining", 'engine.draining'],
  ]),
  ...of('core/policy/placements', [
    [0, 'engines that cannot run a call take places among those looked at', 'const able = sites.filter(({ engine }) => couldHold(core, engine, call));', 'const able = sites;'],
  ]),
  ...of('core/kv/batch-return', [
    [0, 'suspended programs come back one by one', 'if (calls.size < 2)', 'if (true)'],
  ]),
  ...of('core/policy/placement/pack', [
    [11, 'an engine is packed with more than it has room for', 'room.granules < granules || room.places < 1', 'room.places < 1'],
    [0, 'a packing is not improved', 'moveOne(load) || exchangeTwo(load)', 'false'],
  ]),
  ...of('core/queue/boosts', [
    [13, 'boosted work is not counted', 'account.boostedUs += workOf(grown);', ';'],
    [13, 'a boost that is over still counts as open', 'account.open -= 1;', ';'],
    [13, 'who left the line is aged', '    core.turns.aging.delete(call.id);\n', ''],
  ]),
  ...of('core/queue/tenants', [
    [13, 'a tenant that was away comes back with credit', '    share.virtual = Math.max(share.virtual, tenants.floor);\n', ''],
    [13, 'a tenant is charged nothing', 'share.virtual += weighted(chargeUs, weight);', ''],
    [13, 'a tenant is charged times its weight', '(chargeUs * VIRTUAL_PER_US) / weight', 'chargeUs * VIRTUAL_PER_US * weight'],
  ]),
  ...of('core/queue/bands', [
    [13, 'a class band starves the others', '.sort((a, b) => a.virtual - b.virtual || bandRank(a.band) - bandRank(b.band))', '.sort((a, b) => bandRank(a.band) - bandRank(b.band))'],
  ]),
  ...of('core/standing', [
    [13, 'waits of calls beside each other count twice for their program', 'if (standing.waiting === 0)\n        standing.waitedUs += core.nowUs - standing.waitingSinceUs;', 'standing.waitedUs += core.nowUs - sinceUs;'],
    [0, 'the longest path is the last one', 'Math.max(standing.past.pathUs, pathUs)', 'pathUs'],
  ]),
  ...of('core/predict/learn', [
    [13, 'a sub-agent ages itself and not its root', '    if (program.parent !== null)\n        serve(core, must(core.programs, rootOf(core, program).id), grownUs, calls);', ''],
  ]),
  ...of('core/predict/learn', [
    [0, 'levels waver with every program that ends', 'if (sizeMs >= 2 * work.freshMs || 2 * sizeMs <= work.freshMs)', 'if (true)'],
  ]),
  ...of('core/queue/promote', [
    [13, 'nobody is promoted', 'if (crossesUs > 0)', 'if (true)'],
    [14, 'the timer of a promotion is left', 'clearTimer(d, timerOf(call));', 'void timerOf(call);'],
  ]),
  ...of('core/policy/order/levels', [
    [0, 'levels do not double', 'leftUs >= quantumUs && level < levelCount - 1; quantumUs *= 2', 'leftUs >= quantumUs && level < levelCount - 1; quantumUs *= 1'],
  ]),
  ...of('core/policy/order/atlas', [
    [0, 'atlas sums what runs beside each other', 'inheritedOf(core, call).pathUs', 'inheritedOf(core, call).doneUs'],
  ]),
  ...of('core/account', [
    [12, 'recomputing what was evicted ages the program', 'ledger.useful.residentUs + ledger.retried.residentUs', 'ledger.useful.residentUs + ledger.retried.residentUs + ledger.recomputed.residentUs'],
    [12, 'wasted attempts are given back', 'retried: addService(program.retried, attempt.useful),', 'retried: program.retried,'],
  ]),
  ...of('core/malformed', [
    [14, 'numbers that are no amounts come in', "if (!isAmount(name, field))", 'if (false)'],
  ]),
  ...of('core/apply', [
    [7, 'a thread goes on waiting for tools that were answered', 'if (thread.interrupt === id)\n        thread.interrupt = null;', ';'],
    [14, 'tool calls of a forgotten program are kept', 'core.toolCalls.delete(key);', ';'],
    [14, 'a timer that was cleared stays', 'core.timers.delete(fact.timer);', ';'],
  ]),
  ...of('core/due', [
    [0, 'a timer that was set anew is due at its old time', '|| atUs > d.nowUs', ''],
  ]),
  ...of('core/step', [
    [0, 'time goes back', 'Math.max(nowUs, core.nowUs)', 'nowUs'],
  ]),
  ...of('core/kv/inventory', [
    [5, 'whatever an engine holds under a name is adopted', 'digestAt(core, state, held.tokens) !== held.digest', 'false'],
    [3, 'the epoch of what an engine holds is not checked', 'epoch !== null && epoch !== held.epoch', 'false'],
    [5, 'a State that was fed anew elsewhere is taken back', "if (state.residence.kind !== 'gone')", 'if (false)'],
    [11, 'what has no room is adopted', 'granulesOf(engine, held.tokens) > granulesFree(engine)', 'false'],
    [9, 'what nobody owns stays on the engine that kept it', 'if (unclaimed.size > 0 && engine.capabilities.discard)', 'if (false)'],
  ]),
  ...of('core/effects', [
    [7, 'an effect that was committed is committed anew', 'before === undefined ?', 'true ?'],
    [7, 'cancel does not tell what was done', 'commits.map(({ toolCall }) => toolCall)', '[]'],
    [7, 'results that come back commit nothing', "if (interrupt.effect === 'read')", 'if (true)'],
  ]),
  ...of('core/submit', [
    [3, 'results of two calls at once are taken', 'if (strange !== undefined && linked !== null)', 'if (false)'],
    [8, 'a body is the retry of another tenant\'s', 'must(d.core.programs, call.program).tenant !== input.tenant', 'false'],
    [3, 'a body is the retry of another program\'s', 'programId(input.tenant, program) !== call.program', 'false'],
  ]),
  ...of('core/snapshot', [
    [0, 'a snapshot forgets what earlier parts have told', 'for (const text of texts)', 'told.length = 0; for (const text of texts)'],
  ]),
  ...of('core/columns', [
    [0, 'values of several shapes are taken for those of the first', 'if (sorts.every((sort) => sort === first))', 'if (true)'],
    [0, 'a collection takes items of the next', 'all.slice(at, at += length)', 'all.slice(at, at += length + 1)'],
  ]),
  ...of('driver/perform', [
    [14, 'results of a program that was forgotten meanwhile are kept', "case 'program.forgotten': return this.#dropResults(fact.calls)", "case 'program.forgotten': return undefined"],
  ]),
  ...of('driver/driver', [
    [0, 'a barrier fact is performed before it is durable', 'durable: !barrier }', 'durable: true }'],
  ]),
  ...of('driver/recover', [
    [0, 'a log with a hole in it is replayed', 'if (kept.seq !== core.seq + 1)', 'if (false)'],
    [0, 'facts of a newer release are guessed at', 'upcast(kept)', '(kept)'],
  ]),
  ...of('core/site', [
    [0, 'a call is placed on an engine that is drained', 'engine.draining !== true && ', ''],
  ]),
  ...of('core/kv/kv', [
    [0, 'who was on its way to an engine that is drained starts there', "if (move.to === 'device' && must(d.core.engines, move.engine).draining === true)", 'if (false)'],
    [10, 'what was fed again plainly is copied for nobody', ' || isGivenUp(d, state))', ')'],
    [0, 'what is idle stays on an engine that is drained', 'if (engine.draining === true) {', 'if (false) {'],
  ]),
  ...of('core/call', [
    [10, 'what was fed again plainly stays for whoever comes next', ' || state.plainFor === call.id);', ');'],
    [10, 'what is being fed again plainly stays when its call is given up', 'else if (state.plainFor === call.id)', 'else if (false)'],
    [0, 'who is paused by a drain stays on the engine', '?.draining === true)', '?.draining === 0)'],
  ]),
  ...of('core/drain', [
    [0, 'a drain waits for ever for what runs', "if (engine?.draining !== true || engine.stage !== 'joined'", "if (engine?.draining === true || engine?.stage !== 'joined'"],
    [14, 'the timer of a drain outlives it', '    clearTimer(d, `drain:${engine.id}`);\n', ''],
  ]),
  ...of('core/touch', [
    [13, 'who waits for an engine is not looked at when its drain is over', "        case 'engine.drain.ended':\n", ''],
  ]),
  ...of('core/apply', [
    [0, 'an engine that joins again has forgotten that it is drained', '...(before?.draining === true ? { draining: true } : {}), ', ''],
    [13, 'memory stays kept for a call on an engine that is drained', "        case 'engine.drain.begun':\n            core.turns.reservations.delete(fact.engine);\n", "        case 'engine.drain.begun':\n"],
  ]),
  ...of('core/apply-call', [
    [10, 'nobody knows what was fed again plainly', "if (fact.replay === 'plain' && fact.recomputeTokens > 0)", 'if (false)'],
    [10, 'what was fed again plainly and committed is thrown away', "    // Its record says how it was fed.\n        delete state.plainFor;", '    // Its record says how it was fed.'],
  ]),
]
