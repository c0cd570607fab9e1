import io.r2dbc.pool.ConnectionPool;
import io.r2dbc.pool.ConnectionPoolConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionFactory;
import io.r2dbc.postgresql.api.PostgresqlConnection;
import io.r2dbc.postgresql.client.SSLMode;
import io.r2dbc.spi.Connection;
import io.r2dbc.spi.R2dbcException;
import io.r2dbc.spi.Statement;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** R2DBC's driver, which names its statements S_0, S_1, and its pool. */
public final class R2dbcStory {
    private static final boolean POOLED = System.getenv("THROUGH").equals("howdah");
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final String WRONG = "SELECT * FROM nowhere";
    private static final String KILL =
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
    private static final String SLEEPERS =
            "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
    private static final String BIG =
            "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i";
    /** What PostgreSQL says the checksum of BIG is. */
    private static final String BIG_SUM =
            "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + BIG + ") big";

    private static void ok(String what) {
        System.out.println("ok r2dbc: " + what);
    }

    private static void fail(String what, Object wanted, Object seen) {
        System.err.printf("FAILED r2dbc: %s%n  expected: %s%n  seen:     %s%n", what, wanted, seen);
        if (seen instanceof Throwable trouble) {
            trouble.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private static void expect(String what, Object wanted, Object seen) {
        if (!String.valueOf(wanted).equals(String.valueOf(seen))) {
            fail(what, wanted, seen);
        }
    }

    private static void mustFail(String what, String sqlstate, Supplier<?> attempt) {
        try {
            attempt.get();
        } catch (RuntimeException error) {
            if (sqlstate != null && !(error instanceof R2dbcException told && sqlstate.equals(told.getSqlState()))) {
                fail(what, sqlstate, error);
            }
            return;
        }
        fail(what, sqlstate == null ? "an error" : sqlstate, "none");
    }

    private static void done(Publisher<Void> publisher) {
        Mono.from(publisher).block(LONG);
    }

    private static PostgresqlConnectionFactory factory(String port, String database) {
        var configuration = PostgresqlConnectionConfiguration.builder()
                .host(System.getenv("PGHOST"))
                .port(Integer.parseInt(port))
                .database(database)
                .username(System.getenv("PGUSER"))
                .password(System.getenv("PGPASSWORD"));
        if (System.getenv("PGSSLMODE").equals("require")) {
            configuration.sslMode(SSLMode.REQUIRE);
        }
        return new PostgresqlConnectionFactory(configuration.build());
    }

    private static Mono<String> ask(Connection connection, String sql, int... parameters) {
        Statement statement = connection.createStatement(sql);
        for (int i = 0; i < parameters.length; i++) {
            statement.bind(i, parameters[i]);
        }
        return Flux.from(statement.execute())
                .concatMap(result -> result.map((row, about) -> String.valueOf(row.get(0))))
                .collectList()
                .map(rows -> rows.isEmpty() ? "nothing" : rows.get(0));
    }

    private static String value(Connection connection, String sql, int... parameters) {
        return ask(connection, sql, parameters).block(LONG);
    }

    private static void firstSteps(Connection connection) {
        expect("who and where", "app shop", value(connection, "SELECT current_user || ' ' || current_database()"));
        ok("connect");

        mustFail("an unknown table", "42P01", () -> value(connection, WRONG));
        mustFail("a division by zero", "22012", () -> value(connection, "SELECT 1 / $1", 0));
        expect("the next answer", 2, value(connection, "SELECT 1 + $1", 1));
        ok("an error and on");

        value(connection, "DROP TABLE IF EXISTS r2dbc_story");
        value(connection, "CREATE TABLE r2dbc_story (n int, text text)");
        String insert = "INSERT INTO r2dbc_story VALUES ($1, 'x')";
        done(connection.beginTransaction());
        value(connection, insert, 1);
        done(connection.commitTransaction());
        done(connection.beginTransaction());
        value(connection, insert, 2);
        done(connection.rollbackTransaction());
        done(connection.beginTransaction());
        value(connection, insert, 3);
        done(connection.createSavepoint("here"));
        mustFail("an unknown table", "42P01", () -> value(connection, WRONG));
        done(connection.rollbackTransactionToSavepoint("here"));
        done(connection.commitTransaction());
        done(connection.setAutoCommit(true));
        expect("what was committed", "{1,3}", value(connection, "SELECT array_agg(n ORDER BY n)::text FROM r2dbc_story"));
        ok("commit, rollback, savepoint");
    }

    private static void prepared(ConnectionPool pool) {
        Set<String> pids = ConcurrentHashMap.newKeySet();
        Flux.range(0, 3).flatMap(client -> Flux.range(0, 1000).concatMap(i -> {
            int base = client * 1_000_000;
            return Mono.usingWhen(pool.create(), connection -> {
                Mono<String> pid = i % 20 != 0
                        ? ask(connection, "SELECT pg_backend_pid()")
                        : Mono.from(connection.beginTransaction())
                                .then(ask(connection, "SELECT pg_backend_pid() FROM pg_sleep(0.002)"))
                                .flatMap(seen -> Mono.from(connection.commitTransaction()).thenReturn(seen));
                return pid.doOnNext(pids::add)
                        .then(ask(connection, "SELECT $1 + $2", base, i))
                        .doOnNext(seen -> expect("a prepared statement's answer", base + i, seen));
            }, Connection::close);
        })).blockLast(LONG);
        if (POOLED && pids.size() < 2) {
            fail("servers that served three clients", "two or three", pids);
        }
        ok("a prepared statement 1,000 times by each of three");
    }

    private static void batch(PostgresqlConnection connection) {
        Statement insert = connection.createStatement("INSERT INTO r2dbc_story VALUES ($1, 'batch')");
        for (int i = 0; i < 1000; i++) {
            insert.bind(0, i);
            if (i < 999) {
                insert.add();
            }
        }
        Long rows = Flux.from(insert.execute()).concatMap(result -> result.getRowsUpdated()).reduce(0L, Long::sum).block(LONG);
        expect("rows of a batch", 1000, rows);
        List<String> several = Flux.from(connection.createBatch().add("SELECT 1").add("SELECT 2").execute())
                .concatMap(result -> result.map((row, about) -> String.valueOf(row.get(0)))).collectList().block(LONG);
        expect("several statements in a message", "[1, 2]", several);
        ok("batch");
    }

    private static void copy(PostgresqlConnection connection) {
        value(connection, "TRUNCATE r2dbc_story");
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 20000; i++) {
            text.append(i).append("\trow ").append(i).append('\n');
        }
        var bytes = io.netty.buffer.Unpooled.copiedBuffer(text, java.nio.charset.StandardCharsets.UTF_8);
        expect("rows by COPY", 20000, connection.copyIn("COPY r2dbc_story FROM STDIN", Mono.just(bytes)).block(LONG));
        expect("the sum of what was copied", 199990000, value(connection, "SELECT sum(n) FROM r2dbc_story"));
        ok("COPY in");
    }

    private static void cancel(PostgresqlConnection connection, Connection direct) throws Exception {
        var sleep = ask(connection, "SELECT pg_sleep(30)").toFuture();
        long began = System.nanoTime();
        while (value(direct, SLEEPERS).equals("0") && System.nanoTime() - began < 10e9) {
            Thread.sleep(50);
        }
        connection.cancelRequest().block(LONG);
        mustFail("a cancelled statement", "57014", () -> Mono.fromFuture(sleep).block(LONG));
        if (System.nanoTime() - began > 15e9) {
            fail("nanoseconds until the cancel", "few", System.nanoTime() - began);
        }
        expect("the next answer", 3, value(connection, "SELECT $1", 3));
        ok("cancel");
    }

    private static void large(Connection connection, String wanted) throws Exception {
        // In one go, and in portals of a thousand rows.
        for (int fetch : new int[] {0, 1000}) {
            MessageDigest sum = MessageDigest.getInstance("MD5");
            done(connection.beginTransaction());
            Flux.from(connection.createStatement(BIG).fetchSize(fetch).execute())
                    .concatMap(result -> result.map((row, about) -> row.get(0, Integer.class) + row.get(1, String.class)))
                    .doOnNext(row -> sum.update(row.getBytes()))
                    .blockLast(LONG);
            done(connection.commitTransaction());
            expect("the checksum of 50 MB", wanted, HexFormat.of().formatHex(sum.digest()));
        }
        ok("a large result");
    }

    private static void reconnect(ConnectionPool pool, Connection direct) throws Exception {
        Connection connection = pool.create().block(LONG);
        done(connection.beginTransaction());
        value(connection, "SELECT 1");
        value(direct, KILL);
        mustFail("a query on a dead server", null, () -> value(connection, "SELECT 2"));
        Mono.from(connection.close()).onErrorComplete().block(LONG);
        // A pooler may learn of a server's death only by using it.
        for (long began = System.nanoTime(); ; Thread.sleep(100)) {
            try {
                String seen = Mono.usingWhen(pool.create(), fresh -> ask(fresh, "SELECT 42"), Connection::close).block(LONG);
                expect("the answer after that", 42, seen);
                break;
            } catch (RuntimeException error) {
                if (System.nanoTime() - began > 5e9) {
                    fail("reconnect", "success within some seconds", error);
                }
            }
        }
        ok("reconnect after the servers were killed");
    }

    public static void main(String[] arguments) throws Exception {
        try {
            var there = factory(System.getenv("PGPORT"), System.getenv("PGDATABASE"));
            Connection direct = factory(System.getenv("DIRECT_PORT"), "postgres").create().block(LONG);
            ConnectionPool pool = new ConnectionPool(ConnectionPoolConfiguration.builder(there).initialSize(1).maxSize(3).build());
            PostgresqlConnection connection = there.create().block(LONG);
            firstSteps(connection);
            prepared(pool);
            batch(connection);
            copy(connection);
            cancel(connection, direct);
            large(connection, value(direct, BIG_SUM));
            reconnect(pool, direct);
        } catch (Exception error) {
            fail("the story", "no surprise", error);
        }
        Runtime.getRuntime().halt(0);
    }
}
