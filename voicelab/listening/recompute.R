# Compute the figures of a listening test's report anew from its votes.csv, without voicelab, and compare.
#
#   Rscript recompute.R            in the folder of the report; needs lme4, lmerTest and jsonlite
#
# It ends with status 1 where a figure differs.
suppressMessages({library(lme4); library(lmerTest); library(jsonlite)})

study <- fromJSON("study.json")
kind <- study$kind
choices <- kind %in% c("AB", "ABX")
tail_share <- (1 - study$confidence) / 2
scale <- list(MOS = c(1, 5), MUSHRA = c(0, 100), CMOS = c(-3, 3))[[kind]]
# Text that a spreadsheet would run as a formula has a quote before it.
plain <- function(column) if (is.character(column)) sub("^'('*[=+@\t\r\n＝＋－＠-])", "\\1", column) else column
everything <- read.csv("votes.csv", check.names = FALSE, na.strings = "")
everything[] <- lapply(everything, plain)
everything$listener <- as.character(everything$listener)
everything$item <- as.character(everything$item)
votes <- everything[everything$counts == "True", ]
anew <- list()
add <- function(name, value, first = "", second = "") anew[[paste(name, first, second, sep = "\r")]] <<- value
add_interval <- function(name, ends, first = "", second = "") {
  for (i in 1:3) add(paste0(name, c("", ", low", ", high")[i]), ends[i], first, second)
}
within_scale <- function(value, half, scale = c(-Inf, Inf)) c(value, max(scale[1], value - half), min(scale[2], value + half))
reach <- function(df) qt(1 - tail_share, df)
levels_of <- function(column) length(unique(column))

# Statistic, p (exact to 50 differences, ties and all), and Hodges and Lehmann's estimate with its interval.
signed_rank <- function(d) {
  d <- round(d, 12)
  n <- length(d)
  means <- outer(d, d, "+") / 2
  means <- sort(means[upper.tri(means, diag = TRUE)])
  most <- n * (n + 1) / 2
  place <- if (n > 60) floor(most / 2 + qnorm(tail_share) * sqrt(most * (2 * n + 1) / 12))
           else sum(psignrank(0:most, n) <= tail_share)
  estimate <- c(median(means), if (place > 0) c(means[place], rev(means)[place]) else c(-Inf, Inf))
  d <- d[d != 0]
  if (!length(d)) return(list(statistic = 0, p = 1, estimate = estimate))
  statistic <- sum(rank(abs(d))[d > 0])
  if (length(d) > 50) {
    p <- wilcox.test(d, exact = FALSE, correct = FALSE)$p.value
    return(list(statistic = statistic, p = p, estimate = estimate))
  }
  ranks <- round(2 * rank(abs(d)))
  ways <- c(1, numeric(sum(ranks)))
  for (r in ranks) ways <- ways + c(numeric(r), head(ways, -r))
  ways <- ways / sum(ways)
  here <- sum(ranks[d > 0])
  p <- min(1, 2 * min(sum(ways[0:here + 1]), sum(ways[(here + 1):length(ways)])))
  list(statistic = statistic, p = p, estimate = estimate)
}

alpha <- function(table, level) {
  codes <- sort(unique(table[!is.na(table)]))
  counts <- t(apply(table, 2, function(column) sapply(codes, function(code) sum(column == code, na.rm = TRUE))))
  counts <- counts[rowSums(counts) > 1, , drop = FALSE]
  totals <- colSums(counts)
  at <- if (level == "ordinal") cumsum(totals) - totals / 2 else codes
  steps <- outer(at, at, "-")^2
  pairs <- Reduce(`+`, lapply(seq_len(nrow(counts)), function(i)
    (outer(counts[i, ], counts[i, ]) - diag(counts[i, ], length(codes))) / (sum(counts[i, ]) - 1)))
  expected <- (outer(totals, totals) - diag(totals, length(codes))) / (sum(totals) - 1)
  1 - sum(pairs * steps) / sum(expected * steps)
}

# Where a variance is 0 the likelihood may be so flat that lmer stops short of it, with other degrees of freedom.
crossed <- function(rows) {
  groups <- c("listener", "item")
  repeat {
    if (!length(groups)) {
      line <- summary(lm(value ~ 1, data = rows))$coefficients[1, ]
      return(c(line[["Estimate"]], line[["Std. Error"]], nrow(rows) - 1))
    }
    formula <- as.formula(paste("value ~ 1 +", paste0("(1 | ", groups, ")", collapse = " + ")))
    fit <- suppressMessages(lmerTest::lmer(formula, data = rows))
    ratios <- getME(fit, "theta")
    if (min(ratios) > 0.02) break
    groups <- setdiff(groups, sub("[.].*", "", names(which.min(ratios))))
  }
  line <- summary(fit)$coefficients[1, ]
  c(line[["Estimate"]], line[["Std. Error"]], line[["df"]])
}

# A logistic model of rows$value by restricted pseudo-likelihood (Wolfinger and O'Connell 1993): the share in all listeners and
# sentences, its error and Satterthwaite's degrees of freedom. NULL where its logits are not finite.
logistic <- function(rows) {
  groups <- Filter(function(g) levels_of(rows[[g]]) < nrow(rows), c("listener", "item"))
  alike <- lapply(groups, function(g) outer(rows[[g]], rows[[g]], "==") * 1)
  y <- rows$value
  logits <- rep(qlogis(mean(y)), length(y))
  variances <- rep(0.5, length(groups))
  before <- Inf
  for (round in 1:60) {
    chance <- plogis(logits)
    weights <- chance * (1 - chance)
    numbers <- logits + (y - chance) / weights
    covariance <- function(v) Reduce(`+`, Map(`*`, v, alike), diag(1 / weights))
    at <- function(v) {
      root <- chol(covariance(v))
      one <- backsolve(root, rep(1, length(y)), transpose = TRUE)
      number <- backsolve(root, numbers, transpose = TRUE)
      mean <- sum(one * number) / sum(one^2)
      list(mean = mean, square = 1 / sum(one^2),
           deviance = 2 * sum(log(diag(root))) + log(sum(one^2)) + sum((number - one * mean)^2))
    }
    deviance <- function(v) at(v)$deviance
    # Searched by their roots: at 0 there is no border then.
    for (again in 1:2)
      variances <- nlminb(sqrt(pmax(variances, 1e-4)), function(r) deviance(r^2), control = list(rel.tol = 1e-12))$par^2
    fit <- at(variances)
    pull <- solve(covariance(variances), numbers - fit$mean)
    logits <- fit$mean + Reduce(`+`, Map(function(v, a) v * as.vector(a %*% pull), variances, alike), rep(0, length(y)))
    if (max(abs(logits)) > 8) break
    if (abs(fit$mean - before) < 1e-6) {
      shrink <- 1 / sqrt(1 + (16 * sqrt(3) / (15 * pi))^2 * sum(variances))
      share <- plogis(shrink * fit$mean)
      active <- which(variances > 1e-6)
      df <- Inf
      if (length(active)) {
        step <- function(i, part) replace(numeric(length(variances)), i, part * variances[i])
        curvature <- outer(seq_along(active), seq_along(active), Vectorize(function(i, j) {
          one <- step(active[i], 2e-3); two <- step(active[j], 2e-3)
          (deviance(variances + one + two) - deviance(variances + one - two) - deviance(variances - one + two) +
             deviance(variances - one - two)) / (4 * sum(one) * sum(two))
        }))
        slopes <- sapply(active, function(i) {
          one <- step(i, 2e-3)
          log(at(variances + one)$square / at(variances - one)$square) / (2 * sum(one))
        })
        df <- 1 / max(0, as.numeric(slopes %*% solve(curvature, slopes)))
      }
      return(c(share, share * (1 - share) * shrink * sqrt(fit$square), df))
    }
    before <- fit$mean
  }
  NULL
}

can_cross <- function(rows) levels_of(rows$listener) > 1 && levels_of(rows$item) > 1

# Whether there is no residual variance: all values are equal or, with gaps, listeners and sentences explain them.
explained <- function(rows) {
  if (levels_of(rows$value) < 2) return(TRUE)
  if (nrow(rows) == levels_of(rows$listener) * levels_of(rows$item) && !anyDuplicated(rows[c("listener", "item")])) return(FALSE)
  names <- Filter(function(g) levels_of(rows[[g]]) < nrow(rows), c("listener", "item"))
  fit <- lm(reformulate(c("1", names), "value"), data = transform(rows, listener = factor(listener), item = factor(item)))
  fit$rank < nrow(rows) && sum(resid(fit)^2) < 1e-9 * sum((rows$value - mean(rows$value))^2)
}

# Of answers without residual variance: the estimate, and p above and below no effect, by exact sign tests.
sign_test <- function(rows) {
  null <- 0.5 * choices
  value <- mean(rows$value)
  units <- list(tapply(rows$value, rows$listener, mean) - null, tapply(rows$value, rows$item, mean) - null)
  few <- min(lengths(units))
  if (choices) {
    ends <- c(value, if (value > 0) qbeta(tail_share, value * few, few - value * few + 1) else 0,
              if (value < 1) qbeta(1 - tail_share, value * few + 1, few - value * few) else 1)
  } else {
    halves <- unlist(lapply(units, function(own) if (diff(range(own)) > 0) reach(length(own) - 1) * sd(own) / sqrt(length(own))))
    half <- if (length(halves)) max(halves) else (1 - tail_share^(1 / few)) * max(2 * abs(value), 1)
    ends <- within_scale(value, half)
  }
  if (kind == "ABX") units <- list(rows$value - null)
  p <- function(side) max(sapply(units, function(own) {
    own <- side * round(own, 12)
    pbinom(sum(own > 0) - 1, sum(own != 0), 0.5, lower.tail = FALSE)
  }))
  list(ends = ends, above = p(1), below = p(-1))
}

# A mean with its interval over listeners and sentences, or over listeners, or votes, alone.
score <- function(rows, scale) {
  if (can_cross(rows) && !explained(rows)) {
    fit <- crossed(rows)
    return(within_scale(fit[1], reach(fit[3]) * fit[2], scale))
  }
  means <- if (levels_of(rows$listener) == 1) rows$value else tapply(rows$value, rows$listener, mean)
  half <- if (diff(range(means)) == 0) 1 - tail_share^(1 / length(means))
          else reach(length(means) - 1) * sd(means) / sqrt(length(means))
  within_scale(mean(rows$value), half, scale)
}

# The shift of the noncentral t in whose tail the observed one lies; pt() tells of shifts up to 37, beyond it is nearly normal.
shift_of <- function(t, df, share) {
  if (is.infinite(df)) return(t - qnorm(share))
  tryCatch(uniroot(function(shift) pt(t, df, shift) - share, c(max(-37, t - 10 - 3 * abs(t)), min(37, t + 10 + 3 * abs(t))),
                   tol = 1e-9)$root, error = function(e) t - qnorm(share) * sqrt(1 + t^2 / (2 * df)))
}

sizes <- function(rows, share, fit, sd, one, two) {
  if (choices) {
    add_interval("odds ratio", ifelse(share < 1, share / (1 - share), Inf), one, two)
    add_interval("probability of superiority", share, one, two)
    return(invisible())
  }
  if (!is.null(fit)) {
    t <- fit[1] / fit[2]
    ends <- suppressWarnings(sapply(c(1 - tail_share, tail_share), function(share) shift_of(t, fit[3], share)))
    add_interval("standardised difference", c(fit[1], ends * fit[2]) / sd, one, two)
  }
  signs <- transform(rows, value = sign(value))
  delta <- if (levels_of(signs$value) > 1 && is.null(fit)) pmin(1, pmax(-1, sign_test(signs)$ends))
           else if (levels_of(signs$value) > 1) score(signs, c(-1, 1))
           else within_scale(signs$value[1], 2 * (1 - tail_share^(1 / levels_of(rows$listener))), c(-1, 1))
  add_interval("Cliff's delta", delta, one, two)
  add_interval("probability of superiority", (1 + delta) / 2, one, two)
}

gold <- everything[everything$check == "True", ]
gold <- gold[!duplicated(gold[c("listener", "trial")]), ]
add("listeners who took part", levels_of(everything$listener))
add("gold questions", nrow(gold))
add("gold questions, right", sum(gold$passed == "True"))
if ("plays" %in% names(everything))
  add("answers without a sound", sum(everything$plays[!duplicated(everything[c("listener", "trial")])] == 0))
add("listeners", levels_of(votes$listener))
add("sentences", levels_of(votes$item))
add("votes", nrow(votes))
named <- intersect(c("system", "against", "chosen", "other"), names(votes))
named <- named[sapply(votes[named], function(column) !all(is.na(column)))]
clips <- table(paste(votes$item, apply(votes[named], 1, function(row) paste(sort(row), collapse = "\r")), sep = "\r"))
add("votes of a clip, least", min(clips))
add("votes of a clip, most", max(clips))
add("votes of a clip, median", median(clips))
if (kind %in% c("MOS", "MUSHRA")) {
  for (system in unique(votes$system)) {
    rows <- votes[votes$system == system, ]
    rows$value <- r <- rows$rating
    add_interval("mean", score(rows, scale), system)
    q <- quantile(r, c(.25, .5, .75), names = FALSE)
    for (f in list(c("sd", sd(r)), c("votes", length(r)), c("q1", q[1]), c("median", q[2]), c("q3", q[3])))
      add(f[1], as.numeric(f[2]), system)
  }
  table <- tapply(votes$rating, list(paste(votes$item, votes$system, sep = "\r"), votes$listener), mean)
  if (!anyNA(table) && min(dim(table)) > 1) {
    n <- nrow(table); k <- ncol(table); m <- mean(table)
    between <- k * sum((rowMeans(table) - m)^2); judges <- n * sum((colMeans(table) - m)^2)
    bms <- between / (n - 1); jms <- judges / (k - 1)
    ems <- (sum((table - m)^2) - between - judges) / ((n - 1) * (k - 1))
    add("icc(2,1)", (bms - ems) / (bms + (k - 1) * ems + k * (jms - ems) / n))
    add("icc(2,k)", (bms - ems) / (bms + (jms - ems) / n))
  }
  add("alpha", alpha(t(table), if (kind == "MOS") "ordinal" else "interval"))
  rated <- votes[votes$system %in% study$systems, ]
  means <- tapply(rated$rating, list(rated$listener, rated$system), mean)[, study$systems, drop = FALSE]
  means <- means[complete.cases(means), , drop = FALSE]
  if (length(study$systems) > 2 && nrow(means) > 1) {
    test <- friedman.test(means)
    add("Friedman, chi squared", unname(test$statistic))
    add("Friedman, p", test$p.value)
    ranks <- t(apply(means, 1, rank))
    n <- nrow(ranks)
    rho <- function(ranks) {
      centred <- ranks - rowMeans(ranks)
      w <- sum(colSums(centred)^2) / (nrow(ranks) * sum(centred^2))
      (nrow(ranks) * w - 1) / (nrow(ranks) - 1)
    }
    w <- (1 + (n - 1) * rho(ranks)) / n
    add("Kendall's W", w)
    if (n > 2) {
      without <- sapply(1:n, function(i) rho(ranks[-i, , drop = FALSE]))
      error <- sqrt((n - 1) / n * sum((without - mean(without))^2))
      half <- if (error > 1e-12) reach(n - 1) * error else 1 - (1 - 2 * min(0.5, 1 - tail_share^(1 / n)))^2
      ends <- (1 + (n - 1) * (rho(ranks) + c(-half, half))) / n
      add_interval("Kendall's W", c(w, max(0, ends[1]), min(1, ends[2])))
    }
  }
}

fits <- sign_tests <- list()
crossed_p <- these_p <- signs <- numeric()
for (pair in combn(study$systems, 2, simplify = FALSE)) {
  one <- pair[1]; two <- pair[2]; key <- paste(one, two, sep = "\r"); spread <- NA
  if (kind %in% c("MOS", "MUSHRA")) {
    both <- merge(votes[votes$system == one, c("listener", "item", "rating")],
                  votes[votes$system == two, c("listener", "item", "rating")], by = c("listener", "item"))
    rows <- data.frame(listener = both$listener, item = both$item, value = both$rating.x - both$rating.y)
    spread <- sqrt(mean(tapply(votes$rating, votes$system, var)[pair]))
    apart <- means[, one] - means[, two]
  } else if (kind == "CMOS") {
    rows <- votes[votes$system %in% pair & votes$against %in% pair, ]
    rows$value <- ifelse(rows$system == one, rows$rating, -rows$rating)
    spread <- sd(rows$value)
    apart <- tapply(rows$value, rows$listener, mean)
    add_interval("mean", score(transform(rows, value = -value), scale), two, one)
  } else {
    rows <- votes[votes$chosen %in% pair & votes$other %in% pair, ]
    rows$value <- (if (kind == "ABX") rows$right == "True" else rows$chosen == one) * 1
    apart <- tapply(rows$value, rows$listener, mean) - 0.5
  }
  if (!nrow(rows)) next
  fit <- if (can_cross(rows) && choices && levels_of(rows$value) > 1) logistic(rows)
  if (can_cross(rows) && is.null(fit) && !explained(rows)) fit <- crossed(rows)
  if (!is.null(fit)) {
    fits[[key]] <- fit
    t <- (fit[1] - 0.5 * choices) / fit[2]
    crossed_p[key] <- if (kind == "ABX") pt(t, fit[3], lower.tail = FALSE) else 2 * pt(-abs(t), fit[3])
    ends <- within_scale(fit[1], reach(fit[3]) * fit[2], if (choices) c(0, 1) else c(-Inf, Inf))
    add_interval("crossed", ends, one, two)
    for (part in list(list("error", fit[2]), list("df", fit[3]), list("t", t), list("p", crossed_p[[key]])))
      add(paste("crossed,", part[[1]]), part[[2]], one, two)
    sizes(rows, ends, fit, spread, one, two)
    if (choices) {
      cat(sprintf("%s against %s: the logistic model by lme4's glmer, to be seen beside the text:\n", one, two))
      print(summary(glmer(value ~ 1 + (1 | listener) + (1 | item), data = rows, family = binomial))$coefficients)
    }
  }
  if (can_cross(rows) && is.null(fit)) {
    signs_of <- sign_tests[[key]] <- sign_test(rows)
    crossed_p[key] <- if (kind == "ABX") signs_of$above else min(1, 2 * min(signs_of$above, signs_of$below))
    add_interval("crossed", signs_of$ends, one, two)
    add("crossed, p", crossed_p[[key]], one, two)
    sizes(rows, signs_of$ends, NULL, spread, one, two)
  }
  by_votes <- choices && (kind == "ABX" || length(apart) %in% c(1, nrow(rows)))
  if (choices) {
    exact <- binom.test(sum(rows$value), nrow(rows), conf.level = study$confidence)
    side <- if (kind == "ABX") "greater" else "two.sided"
    test <- list(statistic = sum(rows$value), estimate = c(mean(rows$value), exact$conf.int),
                 p = binom.test(sum(rows$value), nrow(rows), alternative = side)$p.value)
  }
  if (!by_votes) {
    if (length(apart) < 2) next
    votes_alone <- if (choices) test$estimate
    test <- signed_rank(as.numeric(apart))
    if (choices) {
      ends <- test$estimate + 0.5
      test$estimate <- c(ends[1], max(0, min(ends[2], votes_alone[2])), min(1, max(ends[3], votes_alone[3])))
    }
  }
  these_p[key] <- test$p
  signs <- c(signs, if (by_votes) 0 else 2^(1 - length(apart)))
  add_interval("these sentences", test$estimate, one, two)
  add("these sentences, statistic", test$statistic, one, two)
  add("these sentences, p", test$p, one, two)
}
for (key in names(crossed_p)) anew[[paste("crossed, p after Holm", key, sep = "\r")]] <- p.adjust(crossed_p)[[key]]
for (key in names(these_p)) anew[[paste("these sentences, p after Holm", key, sep = "\r")]] <- p.adjust(these_p)[[key]]
add("least p of these sentences", min(1, max(0, signs) * sum(signs > 0)))
primary <- study$plan$primary
keys <- c(paste(primary, collapse = "\r"), paste(rev(primary), collapse = "\r"))
if (!is.null(primary) && any(keys %in% names(sign_tests))) {
  signs_of <- sign_tests[[intersect(keys, names(sign_tests))[1]]]
  if (!keys[1] %in% names(sign_tests) && kind != "ABX")
    signs_of <- list(ends = choices - signs_of$ends[c(1, 3, 2)], above = signs_of$below, below = signs_of$above)
  p <- switch(study$plan$claim, different = min(1, 2 * min(signs_of$above, signs_of$below)), equivalent = 1, signs_of$above)
  add_interval("registered", signs_of$ends, primary[1], primary[2])
  add("registered, p", p, primary[1], primary[2])
} else if (!is.null(primary)) {
  ahead <- fits[[paste(primary, collapse = "\r")]]
  turned <- is.null(ahead)
  if (turned) ahead <- fits[[paste(rev(primary), collapse = "\r")]]
  null <- 0.5 * choices
  value <- (ahead[1] - null) * (if (turned && kind != "ABX") -1 else 1)  # right answers have no direction
  ends <- within_scale(value + null, reach(ahead[3]) * ahead[2], if (choices) c(0, 1) else c(-Inf, Inf))
  add_interval("registered", ends, primary[1], primary[2])
  add("registered, t", value / ahead[2], primary[1], primary[2])
  margin <- if (is.null(study$plan$margin)) 0 else study$plan$margin
  above <- pt((value + margin) / ahead[2], ahead[3], lower.tail = FALSE)
  below <- pt((value - margin) / ahead[2], ahead[3], lower.tail = FALSE)
  p <- switch(study$plan$claim, different = 2 * min(above, 1 - above), equivalent = max(above, 1 - below), above)
  add("registered, p", p, primary[1], primary[2])
}
if (kind == "AB" && length(study$systems) > 2) {
  design <- sapply(study$systems, function(system) (votes$chosen == system) - (votes$other == system))
  both <- rbind(design, -design)[, -1, drop = FALSE]
  won <- rep(c(1, 0), each = nrow(design))
  fit <- suppressWarnings(glm(won ~ both - 1, family = binomial, weights = rep(0.5, length(won)),
                              control = glm.control(epsilon = 1e-12)))
  strength <- setNames(c(0, coef(fit)), study$systems)
  covariance <- rbind(0, cbind(0, vcov(fit)))
  dimnames(covariance) <- list(study$systems, study$systems)
  for (one in study$systems) for (two in setdiff(study$systems, one)) {
    error <- sqrt(covariance[one, one] + covariance[two, two] - 2 * covariance[one, two])
    half <- qnorm(1 - tail_share) * error
    add_interval("Bradley-Terry, odds", exp(within_scale(strength[[one]] - strength[[two]], half)), one, two)
  }
}
if (choices && "first" %in% names(votes)) {
  first <- votes$first == "True"
  add("share of the first", mean(first))
  add("share of the first: p", binom.test(sum(first), length(first))$p.value)
}
if (kind == "CMOS") {
  means <- tapply(votes$rating, votes$listener, mean)
  add("mean of the second over the first", mean(means))
  if (length(means) > 1 && diff(range(round(means, 12))) > 0) add("mean of the second over the first: p", t.test(means)$p.value)
}
if ("place" %in% names(votes)) {
  half <- votes$place >= ave(votes$place, votes$listener, FUN = median)
  for (name in intersect(c("seconds", "rating"), names(votes))) {
    both <- tapply(votes[[name]], list(votes$listener, half), mean)
    both <- both[complete.cases(both), , drop = FALSE]
    if (ncol(both) < 2) next
    add(paste0(name, ", first half"), mean(both[, "FALSE"]))
    add(paste0(name, ", second half"), mean(both[, "TRUE"]))
    apart <- both[, "TRUE"] - both[, "FALSE"]
    if (length(apart) > 1 && diff(range(round(apart, 12))) > 0) add(paste0(name, ", halves: p"), t.test(apart)$p.value)
  }
}

printed <- read.csv("figures.csv", na.strings = NULL, colClasses = c("character", "character", "character", "numeric"))
printed[] <- lapply(printed, plain)
# An end near 0 of a wide interval is as exact as the interval.
reaches <- ave(abs(printed$value), sub(", (low|high)$", "", printed$figure), printed$first, printed$second, FUN = max)
other <- 0
for (i in seq_len(nrow(printed))) {
  row <- printed[i, ]
  value <- anew[[paste(row$figure, row$first, row$second, sep = "\r")]]
  same <- !is.null(value) && is.finite(value) && abs(value - row$value) <= max(2e-3 * reaches[i], 2e-4)
  other <- other + !same
  cat(sprintf("%-6s %-60s %.6g %.6g\n", if (same) "same" else "OTHER", paste(row$figure, row$first, row$second),
              row$value, if (is.null(value)) NaN else value))
}
cat(sprintf("%d figures, %d of them other\n", nrow(printed), other))
quit(status = as.integer(other > 0))
